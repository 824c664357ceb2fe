"""Search for the smallest file that keeps a share of a model's quality.

Whole modes are tried first. Then each weight of a LiteRT file is measured alone
in the modes below, and weights get fewer bits, first those that lose least.
"""

import collections
import dataclasses
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.checks import is_number
from keras_posenc.export import units
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats.litert_file import read
from keras_posenc.export.formats.litert_quantize import BITS, Weight, weights_in
from keras_posenc.export.inspect import inspect_export
from keras_posenc.export.litert import export_litert
from keras_posenc.export.onnx import export_onnx
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.progress import progress
from keras_posenc.publish import working_folder

_FEW = 64  # samples that measure what a weight loses alone


@dataclasses.dataclass(frozen=True)
class WeightBits:
    """How a file stores one weight.

    Attributes:
        name: Its path in the model, or else the operator that reads it.
        numbers: How many numbers it has.
        mode: Its mode, such as `"int4"` or `"float32"`.
        losses: What the outputs lose if it alone is in a mode: their error as a
            share of what they vary, of generators the KL divergence. By mode.
    """

    name: str
    numbers: int
    mode: str
    losses: dict[str, float]


@dataclasses.dataclass(frozen=True)
class QuantizedModel(ExportedModel):
    """An exported model that `quantize` has found.

    Attributes:
        path: The file.
        report: The report of its verification, on the samples held out.
        quantization: The mode or recipe that gives this file; None for float32.
        weights: How each weight is stored, if that was measured.
    """

    quantization: Any = None
    weights: Sequence[WeightBits] = ()

    def __str__(self) -> str:
        modes = collections.Counter(each.mode for each in self.weights)
        found = ", ".join(
            f"{units.count(count, 'weight')} in {mode}"
            for mode, count in sorted(modes.items())
        )
        whole = self.quantization or "float32"
        return f"{super().__str__()}\nquantize found: {found or whole}"


def quantize(
    model: keras.Model,
    path: str | Path,
    *,
    samples: Any,
    keep: float = 0.99,
    limits: Mapping[str, float] | None = None,
    verbose: int = True,
    **options: Any,
) -> QuantizedModel:
    """Exports the smallest LiteRT or ONNX file that keeps a share of quality.

    >>> import keras_posenc as kp
    >>> found = kp.quantize(model, "s.tflite", samples=texts)  # doctest: +SKIP

    A file passes if its verification does, with limits by `keep`: of scores,
    the share `keep` of samples has the model's class; each vector has a cosine
    of at least `keep` with the model's; the error of an output is at most
    `1 - keep` of what it varies; the perplexity of a generator is at most
    `1 / keep` times the model's. Every second sample verifies the published
    file; the others choose it. Inputs of another kind may lose more.

    The modes of an ONNX file are int8 and float32. Of a LiteRT file each weight
    may have its own: int4, int8, int8-weights, float16 or float32. That takes
    an export for each weight and mode that is tried, and the extra `quantize`.

    Args:
        model: Any built Keras model.
        path: The file, ending in `.tflite` or `.onnx`.
        samples: Real inputs, as for `verify`: some hundred.
        keep: Share of quality, above 0 and at most 1.
        limits: Limits that differ from those by `keep`, by name; see
            `verify_export`.
        verbose: Whether to show progress.
        **options: Further arguments of `export_litert` or `export_onnx`.

    Returns:
        A `QuantizedModel`. If nothing with fewer bits passes, its
        `quantization` is None: the file is in float32.

    Raises:
        ValueError: `keep` is no share, there are fewer than two samples, or an
            argument is none of the above.
        ImportError: An extra is needed that is not installed.
        ExportError: As `export_litert` and `export_onnx`.
    """
    if not (is_number(keep) and 0 < keep <= 1):
        raise ValueError(
            "`keep` must be a number above 0 and at most 1, such as 0.99. "
            f"Received: keep={keep!r}"
        )
    formats: dict[str, tuple[Any, list[str]]] = {
        ".tflite": (export_litert, [*BITS][:-1]),
        ".onnx": (export_onnx, ["int8"]),
    }
    suffix = Path(path).suffix
    if suffix not in formats:
        raise ValueError(
            f"`path` must end in '.tflite' or '.onnx'. Received: path='{path}'"
        )
    function, modes = formats[suffix]
    decibels = math.inf if keep == 1 else -10 * math.log10(1 - keep)
    wanted = {
        "agreement": keep,
        "cosine": keep,
        "sqnr": round(decibels, 1),
        "perplexity": 1 / keep,
        **(limits or {}),
    }

    def export(quantization: Any, path: Any, samples: Any) -> ExportedModel:
        exported: ExportedModel = function(
            model,
            path,
            quantization=quantization,
            limits=None if quantization is None else wanted,
            samples=samples,
            verbose=False,
            **options,
        )
        return exported

    chosen, held_out = (_taken(samples, slice(n, None, 2)) for n in (0, 1))
    with working_folder() as folder, progress(verbose) as step:
        trial = folder / f"trial{suffix}"

        def tried(quantization: Any, samples: Any) -> VerificationReport | None:
            """Returns the report of an export, also if its outputs fail."""
            try:
                return export(quantization, trial, samples).report
            except ExportVerificationError as error:
                report: Any = error.report
                return report
            except ExportError:  # the quantizer lacks the mode
                return None

        def passes(quantization: Any, text: str) -> bool:
            step(f"Trying {text}")
            return bool(tried(quantization, chosen))

        least = next(
            (place for place, mode in enumerate(modes) if passes(mode, mode)),
            len(modes),
        )
        files: list[tuple[Any, Sequence[WeightBits]]]
        files = [(mode, ()) for mode in (*modes[least:], None)]
        if least and suffix == ".tflite":
            own = {**options, "verify": False, "verbose": False}
            function(model, trial, **own)
            weights = weights_in(read(trial.read_bytes()), model.weights)
            few = _taken(chosen, slice(_FEW))
            usual = [*modes, "float32"][least]  # passes for all weights
            losses = []
            for number, weight in enumerate(weights, 1):
                step(f"Measuring weight {number} of {len(weights)}")
                lost = {
                    mode: _loss(tried([*weight.recipe(mode)], few))
                    for mode in modes[:least]
                    if weight.takes(mode)
                }
                lost = {mode: x for mode, x in lost.items() if x < math.inf}
                lost[usual if weight.takes(usual) else "float32"] = 0.0
                losses.append(lost)
            mixed = _mixed(weights, losses, usual)
            first = bisect_left(
                range(len(mixed)),
                True,
                key=lambda n: passes(
                    mixed[n][0], f"file {n + 1} of {len(mixed)}, smallest first"
                ),
            )
            left = mixed[first:]
            # If one fails on the other samples, the next is twice as far.
            files[:0] = [left[2**n - 1] for n in range(len(left).bit_length())]
        step("Verifying it on the samples held out")
        for quantization, stored in files:
            try:
                exported = export(quantization, path, held_out)
            except ExportVerificationError as error:
                if error.report is None or quantization is None:
                    raise
                continue
            found = QuantizedModel(
                exported.path, exported.report, quantization, stored
            )
            break
    if inspect_export(found.path).quantization is None:  # nothing takes it
        return dataclasses.replace(found, quantization=None, weights=())
    return found


def _loss(report: VerificationReport | None) -> float:
    if report is None:
        return math.inf
    losses = [
        1 - (each.agreement or 0.0)
        if each.sqnr is None
        else 10 ** (-each.sqnr / 10)
        for each in report.quality.values()
    ]
    likelihoods = report.likelihoods_of.values()
    losses += [each.kl for each in likelihoods if each.drawn]
    return math.inf if any(map(math.isnan, losses)) else sum(losses)


def _mixed(
    weights: Sequence[Weight], losses: Sequence[dict[str, float]], usual: str
) -> list[tuple[Any, Sequence[WeightBits]]]:
    """Returns recipes and what they store, from the smallest file on."""
    pairs = [*zip(weights, losses, strict=True)]
    modes = [usual if x.takes(usual) else "float32" for x in weights]
    steps = sorted(
        (lost / (BITS[modes[place]] - BITS[mode]) / weight.numbers, place, mode)
        for place, (weight, found) in enumerate(pairs)
        for mode, lost in found.items()
        if BITS[mode] < BITS[modes[place]]
    )
    files: list[tuple[Any, Sequence[WeightBits]]] = []
    for _, place, mode in steps:
        if BITS[mode] > BITS[modes[place]]:
            continue
        modes[place] = mode
        rows = [*zip(pairs, modes, strict=True)]
        recipe = [entry for (x, _), mode in rows for entry in x.recipe(mode)]
        stored = [
            WeightBits(x.name, x.numbers, mode, found)
            for (x, found), mode in rows
        ]
        files.insert(0, (recipe, stored))
    return files


def _taken(samples: Any, part: slice) -> Any:
    if isinstance(samples, Mapping):
        return {name: _taken(each, part) for name, each in samples.items()}
    if isinstance(samples, list | tuple) and len(samples) == 1:
        return _taken(samples[0], part)
    found = None if isinstance(samples, str) else samples[part]
    if found is None or not len(found):
        raise ValueError(
            "`samples` must be two real inputs at least, and some hundred to "
            "know the quality: some choose the file, and the others verify it"
        )
    return found
