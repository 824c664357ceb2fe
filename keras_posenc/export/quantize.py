"""Search for the smallest file that keeps a share of a model's quality.

Whole modes are tried first, from the fewest bits to the most. If one passes,
then each weight of a LiteRT file is exported alone in the modes below it, to
measure what that loses. Losses of different weights add up. So a sequence of
files begins with the fewest bits, and gives more to the weight that loses most
for each byte. The first file of it that passes is published.
"""

import bisect
import collections
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.checks import is_number
from keras_posenc.export import units
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats.litert_quantize import BITS, Weight, weights_in
from keras_posenc.export.litert import export_litert
from keras_posenc.export.onnx import export_onnx
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.progress import progress
from keras_posenc.publish import working_folder

_MODES = {".tflite": [*BITS], ".onnx": ["int8", "float32"]}
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

    A file passes if its verification does, with limits by `keep`: of scores,
    the share `keep` of samples has the model's class; each vector has a cosine
    of at least `keep` with the model's; the error of an output is at most
    `1 - keep` of what it varies; the perplexity of a generator is at most
    `1 / keep` times the model's. Every second sample is held out to verify the
    file that is published; the others choose it. So the quality may be lower on
    inputs of another kind than your samples.

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
    suffix = Path(path).suffix
    if suffix not in _MODES:
        raise ValueError(
            f"`path` must end in '.tflite' or '.onnx'. Received: path='{path}'"
        )
    decibels = math.inf if keep == 1 else -10 * math.log10(1 - keep)
    own = dict(limits or {})
    search = _Search(
        model,
        export_onnx if suffix == ".onnx" else export_litert,
        {
            "agreement": keep,
            "cosine": keep,
            "sqnr": round(decibels, 1),
            "perplexity": 1 / keep,
            **own,
        },
        options,
    )
    chosen, held_out = (_taken(samples, slice(n, None, 2)) for n in (0, 1))
    modes = _MODES[suffix]
    with working_folder() as folder, progress(verbose) as step:
        trial = folder / f"trial{suffix}"

        def passes(mode: str) -> bool:
            step(f"Trying {mode}")
            return mode == "float32" or search.passes(mode, trial, chosen)

        least = next(place for place, each in enumerate(modes) if passes(each))
        candidates = [_Candidate(each) for each in modes[least:]]
        if least and suffix == ".tflite":
            mixed = _mixed(search, modes[: least + 1], trial, chosen, step)
            candidates = [*mixed, *candidates]
        step("Verifying it on the samples held out")
        for each in candidates:
            is_last = each.quantization == "float32"
            try:
                exported = search.export(each.quantization, path, held_out)
            except ExportVerificationError as error:
                if error.report is None or is_last:
                    raise
            else:
                break
    report = exported.report
    if report is not None:  # names what the caller gave
        report = dataclasses.replace(report, given_limits=[*own])
    if is_last:
        return QuantizedModel(exported.path, report)
    return QuantizedModel(
        exported.path, report, each.quantization, each.weights
    )


@dataclasses.dataclass(frozen=True)
class _Candidate:
    quantization: Any
    weights: Sequence[WeightBits] = ()


@dataclasses.dataclass(frozen=True)
class _Search:
    """Exports of one model, with the limits of a quantized file."""

    model: keras.Model
    function: Any
    limits: Mapping[str, float]
    options: Mapping[str, Any]

    def export(
        self, quantization: Any, path: str | Path, samples: Any, **options: Any
    ) -> ExportedModel:
        is_float = quantization == "float32"
        exported: ExportedModel = self.function(
            self.model,
            path,
            quantization=None if is_float else quantization,
            limits=None if is_float else self.limits,
            samples=samples,
            verbose=False,
            **{**self.options, **options},
        )
        return exported

    def report(
        self, quantization: Any, path: Path, samples: Any
    ) -> VerificationReport | None:
        """Returns the report of an export, also if it fails by its outputs."""
        try:
            return self.export(quantization, path, samples).report
        except ExportVerificationError as error:
            found: Any = error.report
            return found
        except ExportError:  # the quantizer lacks the mode
            return None

    def passes(self, quantization: Any, path: Path, samples: Any) -> bool:
        return bool(self.report(quantization, path, samples))

    def loss(self, quantization: Any, path: Path, samples: Any) -> float:
        """Returns the error of the outputs, as a share of what they vary."""
        report = self.report(quantization, path, samples)
        if report is None:
            return math.inf
        losses = [
            1 - (each.agreement or 0.0)
            if each.sqnr is None
            else 10 ** (-each.sqnr / 10)
            for each in report.quality.values()
        ]
        if report.likelihoods is not None:
            losses.append(report.likelihoods.kl)
        return math.inf if any(map(math.isnan, losses)) else sum(losses)


def _mixed(
    search: _Search,
    modes: Sequence[str],
    trial: Path,
    samples: Any,
    step: Callable[[str], object],
) -> list[_Candidate]:
    """Returns recipes of one mode for each weight, from the smallest file on.

    The first passes on the samples. The next ones are for the case that it
    fails on others: each is twice as far along the sequence. Of the modes only
    the last one passes for all weights.
    """
    search.export("float32", trial, None, verify=False)
    weights = weights_in(trial, search.model.weights)
    few, losses = _taken(samples, slice(_FEW)), list[dict[str, float]]()
    for number, weight in enumerate(weights, 1):
        step(f"Measuring weight {number} of {len(weights)}")
        *lower, usual = modes
        found = {
            mode: search.loss([*weight.recipe(mode)], trial, few)
            for mode in lower
            if weight.takes(mode)
        }
        found = {mode: x for mode, x in found.items() if x < math.inf}
        # Not measured: it passes, or is float32.
        found[usual if weight.takes(usual) else "float32"] = 0.0
        losses.append(found)
    recipes = []
    for chosen in _sequence(weights, losses):
        rows = [*zip(weights, chosen, losses, strict=True)]
        recipe = [entry for x, mode, _ in rows for entry in x.recipe(mode)]
        if recipe:
            stored = [
                WeightBits(x.name, x.numbers, mode, found)
                for x, mode, found in rows
            ]
            recipes.append(_Candidate(recipe, stored))

    def passes(place: int) -> bool:
        step(f"Trying file {place + 1} of {len(recipes)}, smallest first")
        return search.passes(recipes[place].quantization, trial, samples)

    left = recipes[bisect.bisect_left(range(len(recipes)), True, key=passes) :]
    return [left[2**n - 1] for n in range(len(left).bit_length())]


def _sequence(
    weights: Sequence[Weight], losses: Sequence[Mapping[str, float]]
) -> Iterator[list[str]]:
    """Yields a mode for each weight, from the smallest file on.

    In each step, one weight gets more bits: that which loses most for each bit.
    """
    chosen = [min(found, key=BITS.__getitem__) for found in losses]
    yield [*chosen]

    def gains() -> Iterator[tuple[float, int, str]]:
        for place, (weight, found) in enumerate(
            zip(weights, losses, strict=True)
        ):
            for mode in found:
                more = BITS[mode] - BITS[chosen[place]]
                if more > 0:
                    gain = found[chosen[place]] - found[mode]
                    yield gain / (more * weight.numbers), -place, mode

    while best := max(gains(), default=None):
        _, place, mode = best
        chosen[-place] = mode
        yield [*chosen]


def _taken(samples: Any, part: slice) -> Any:
    """Returns a part of samples; see `verify_export` for what they may be."""
    if isinstance(samples, Mapping):
        return {name: _taken(each, part) for name, each in samples.items()}
    if isinstance(samples, list | tuple) and len(samples) == 1:
        return _taken(samples[0], part)
    found = None if isinstance(samples, str) else samples[part]
    if found is None or not len(found):
        raise ValueError(
            "`samples` (--samples) must be two real inputs at least, and some "
            "hundred to know the quality: some choose the file, and the others "
            "verify it"
        )
    return found
