"""Finds the recipe of the smallest LiteRT file that keeps its quality.

Each weight is quantized alone, in each mode that its operators have, to measure
what that loses. Losses of different weights add up, so from the smallest file
on, the weight that loses most for each byte gets more bits. Of this sequence of
files the first one is taken that keeps enough.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import is_number
from keras_posenc.export import units
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats.litert_convert import converted, variables_of
from keras_posenc.export.formats.litert_edit import kinds_of as operators_of
from keras_posenc.export.formats.litert_file import write
from keras_posenc.export.formats.litert_recipe import (
    in_blocks,
    look_up,
    round_by_recipe,
)
from keras_posenc.export.formats.litert_round import (
    SMALLEST,
    place_of,
    weights_of,
)
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.compare import maker_of
from keras_posenc.export.probes.quality import CLASSES, VECTORS, kinds_of
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.report import AutoQuantization, WeightBits
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import Limits, run_model
from keras_posenc.progress import counted
from keras_posenc.publish import working_folder

KEEP = 0.99
_EXAMPLES = 2000  # most that are used
_FEW = 64  # of these, for what each weight loses alone
_NEAREST = 10
_VECTORS = 100  # fewest vectors: among 11, all ten others are the nearest
_MOST = 2**30  # bytes of all outputs
_CHANCE = 0.05  # that a file that keeps less shows no loss
_LIMITS = Limits(memory=None, seconds=None, file=2**34, timeout=3600)

# Bits of a number in each mode, from the fewest to the most. "int8-weights" has
# as many as "int8": one more, so that the faster one is taken if both are good
# enough. In "int4" a block of 32 has a scale of 16 bits.
_BITS = {
    "int4": 4.5,
    "int8": 8.0,
    "int8-weights": 9.0,
    "float16": 16.0,
    "float32": 32.0,
}
# By the names of ai-edge-quantizer.
_NAMES = {"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}
_IN_BLOCKS = {"EMBEDDING_LOOKUP", "FULLY_CONNECTED"}
_CONVOLUTIONS = {"CONV_2D", "CONV_2D_TRANSPOSE", "DEPTHWISE_CONV_2D"}
_IN_INT8 = {*_IN_BLOCKS, *_CONVOLUTIONS, "BATCH_MATMUL"}
_IN_FLOAT16 = {*_IN_BLOCKS, *_CONVOLUTIONS}


def check_keep(quantization: Any, keep: Any, samples: Any) -> float | None:
    """Returns the share of quality that `"auto"` keeps; None without `"auto"`.

    Raises:
        ValueError: It is no share, or is given without `"auto"`, or there are
            no samples.
    """
    if not (isinstance(quantization, str) and quantization == "auto"):
        if keep is not None:
            raise ValueError(
                "`keep` (--keep) is the share of quality that "
                "quantization='auto' keeps. Received: "
                f"keep={keep!r}, quantization={quantization!r:.60}"
            )
        return None
    keep = KEEP if keep is None else keep
    if not (is_number(keep) and 0 < keep <= 1):
        raise ValueError(
            "`keep` must be a number above 0 and at most 1, such as 0.99. "
            f"Received: keep={keep!r}"
        )
    if samples is None:
        raise ValueError(
            "quantization='auto' needs `samples` (--samples) to measure the "
            f"quality with: {needed_samples(keep)} real inputs, such as "
            f"`samples=texts[:{needed_samples(keep)}]`"
        )
    return float(keep)


def needed_samples(keep: float, has_vectors: bool = False) -> int:
    """Returns how many samples are needed; see `find_recipe`."""
    held_out = math.ceil(math.log(_CHANCE) / math.log(min(keep, KEEP)))
    return max(2 * held_out, _VECTORS if has_vectors else 0)


def examples_of(signature: Signature, fitted: Sequence[Inputs]) -> list[Inputs]:
    """Returns the single examples of batches of a signature.

    Raises:
        ValueError: The signature takes several at a time.
    """
    if any(spec.shape[0] not in (None, 1) for spec in signature.specs.values()):
        raise ValueError(
            "quantization='auto' runs a model example by example, and "
            f"signature '{signature.name}' takes batches of one size. Leave "
            "out `signatures` (--signature), or give it a batch of 1 or None"
        )
    return [
        {name: array[row : row + 1] for name, array in inputs.items()}
        for inputs in fitted
        for row in range(len(next(iter(inputs.values()))))
    ]


def find_recipe(
    signatures: Sequence[Signature],
    examples: Sequence[Inputs],
    keep: float,
    allow_flex: bool,
    step: Any,
) -> tuple[AutoQuantization, list[Inputs]]:
    """Finds the recipe of the smallest file that keeps its quality.

    Half of the examples choose the recipe, and the other half, which is held
    out, must show at least the quality. There must be so many that a file which
    keeps less would show no loss in one of 20 draws at most: `keep ** n` is at
    most 0.05 for the `n` held out. For a `keep` above 0.99 there must be as
    many as for 0.99.

    Args:
        signatures: The one signature of a frozen model.
        examples: Inputs, of one example each. Of equal ones, one is used.
        keep: The share of quality to keep.
        allow_flex: As for `export_litert`.
        step: Shows the progress.

    Returns:
        What was found, and the examples that were held out. Without any recipe
        that keeps enough, its `recipe` is empty: float32.

    Raises:
        ValueError: Too few examples, several signatures, or outputs whose
            quality is not known.
        ExportError: The model needs operators that LiteRT lacks.
    """
    _check_model(signatures)
    examples = _different(examples)
    _check_count(len(examples), keep)
    (signature,) = signatures
    order = np.random.default_rng(0).permutation(len(examples))[:_EXAMPLES]
    examples = [examples[index] for index in order]
    step("Converting to LiteRT")
    model = converted(signatures, None, {}, allow_flex)
    look_up(model)
    with working_folder() as folder:
        trial = _Trial(signature, model, folder / "trial.tflite")
        size = trial.write([])
        _check_size(trial.run(examples[:1])[0], len(examples))
        step("Running it")
        quality = _Quality(signature, trial.run(examples, step, "Running it"))
        _check_count(len(examples), keep, VECTORS in quality.kinds.values())
        held_out = slice(0, (len(examples) + 1) // 2)
        fitting = slice(held_out.stop, None)
        few = examples[fitting][:_FEW]
        own = quality.outputs[fitting][:_FEW]
        weights = [*_weights(model, signature)]
        for number, weight in enumerate(weights, 1):
            step(f"Measuring weight {number} of {len(weights)}")
            trial.measure(weight, few, own, quality)
        recipes = [*_sequence(weights)]

        @functools.cache
        def kept(index: int) -> np.ndarray:
            """Returns the quality of each output and example."""
            recipe = _recipe(weights, recipes[index])
            if not recipe:
                return np.ones((1, len(examples)))
            name = f"Trying file {index + 1} of {len(recipes)}, smallest first"
            step(name)
            trial.write(recipe)
            return quality.kept(trial.run(examples, step, name))

        def is_enough(index: int, part: slice) -> bool:
            return bool(kept(index)[:, part].mean(axis=1).min() >= keep)

        least, chosen = -1, len(recipes) - 1
        while chosen - least > 1:
            middle = (least + chosen) // 2
            if is_enough(middle, fitting):
                chosen = middle
            else:
                least = middle
        while not is_enough(chosen, held_out):
            chosen = _next(weights, recipes, chosen)
    found = kept(chosen)[:, held_out]
    worst = found[found.mean(axis=1).argmin()]
    return AutoQuantization(
        keep=keep,
        measures=quality.measures,
        quality=float(worst.mean()),
        error=float(worst.std() / math.sqrt(worst.size)),
        held_out=worst.size,
        samples=len(examples),
        float32_bytes=size,
        weights=[
            WeightBits(
                weight.name,
                weight.numbers,
                weight.modes[level],
                weight.losses[level],
                dict(zip(weight.modes, weight.losses, strict=True)),
            )
            for weight, level in zip(weights, recipes[chosen], strict=True)
        ],
        recipe=_recipe(weights, recipes[chosen]),
    ), examples[held_out]


def _check_model(signatures: Sequence[Signature]) -> None:
    """Raises `ValueError` for models whose quality is not measured here."""
    model, name = signatures[0].model, signatures[0].name
    offers = Offers.of(model)
    if offers.retrace is not None or offers.measures_quantized is not None:
        raise ValueError(
            "quantization='auto' measures classes and vectors, and "
            f"'{model.name}' generates sequences. Give a mode, such as "
            "quantization='int8-weights', or a recipe of ai-edge-quantizer, "
            "and read the perplexity in the report"
        )
    if len(signatures) > 1:
        raise ValueError(
            "quantization='auto' measures a file of one signature. Received: "
            f"{', '.join(each.name for each in signatures)}. Give '{name}' "
            "alone"
        )


def _different(examples: Sequence[Inputs]) -> list[Inputs]:
    """Returns examples without repetitions, which would hold nothing out."""
    found: dict[Any, Inputs] = {}
    for inputs in examples:
        key = tuple(
            (name, array.shape, array.tobytes())
            for name, array in sorted(inputs.items())
        )
        found.setdefault(key, inputs)
    return [*found.values()]


def _check_count(count: int, keep: float, has_vectors: bool = False) -> None:
    needed = needed_samples(keep, has_vectors)
    if count < needed:
        remedy = "Give more `samples` (--samples)"
        if count >= (_VECTORS if has_vectors else 2):
            # So much that `keep ** n` is at most _CHANCE, rounded down.
            most = math.floor(1e3 * _CHANCE ** (1 / (count // 2))) / 1e3
            remedy += f", or a `keep` (--keep) of at most {most:g}"
            if count < _VECTORS:
                remedy += f"; vectors need {_VECTORS} samples at least"
        raise ValueError(
            f"quantization='auto' with keep={keep:g} needs {needed:,} samples: "
            "half of them are held out, and fewer could hide a loss by chance. "
            f"Received: {units.count(count, 'different sample')}. {remedy}"
        )


def _check_size(outputs: Mapping[str, Any], count: int) -> None:
    """Raises `ValueError` if the outputs would not fit into memory."""
    total = count * sum(value.nbytes for value in outputs.values())
    if total > _MOST:
        raise ValueError(
            "quantization='auto' keeps the outputs for all samples, at most "
            f"{units.size(_MOST)}, and these have {units.size(total)}: "
            f"{describe(dict(outputs))} for each. Give a mode or a recipe, or "
            "shorter `samples` (--samples)"
        )


# What an output is compared by, where it is no vector, scores or logits.
_YES_NO, LOGITS = "yes or no", "logits"
_MEASURES = {
    VECTORS: f"recall@{_NEAREST}",
    CLASSES: "share of equal classes",
    LOGITS: "share of equal classes",
    _YES_NO: "share of equal sides of 0.5",
}


_LINEAR = (keras.layers.Dense, keras.layers.EinsumDense)


def _losses(kind: str, wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Returns the KL divergence of logits in nats, of vectors 1 - cosine."""
    if kind == VECTORS:
        return 1 - np.sum(_unit(wanted) * _unit(got), axis=-1)
    logs, others = _log_softmax(wanted), _log_softmax(got)
    found: np.ndarray = np.sum(np.exp(logs) * (logs - others), axis=-1)
    return np.maximum(found, 0.0)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype("float64")
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


class _Quality:
    """What other outputs keep of the float32 file's.

    Args:
        signature: The signature.
        outputs: The outputs for each example, as arrays by name.

    Raises:
        ValueError: The quality of no output is known, or one is not finite.
    """

    def __init__(
        self, signature: Signature, outputs: Sequence[Mapping[str, Any]]
    ) -> None:
        self.outputs = outputs
        self.kinds = {}
        for name, kind in kinds_of(signature, outputs).items():
            shape, maker = outputs[0][name].shape, maker_of(signature, name)
            if len(shape) < 2 or kind not in (CLASSES, VECTORS):
                continue
            if shape[-1] == 1:
                if kind == CLASSES:
                    self.kinds[name] = _YES_NO
            elif kind == CLASSES:
                self.kinds[name] = CLASSES
            elif isinstance(maker, _LINEAR) and maker.activation in (
                None,
                keras.activations.linear,
            ):
                self.kinds[name] = LOGITS
            elif len(shape) == 2:  # nobody searches those of tokens
                self.kinds[name] = VECTORS
        if not self.kinds:
            raise ValueError(
                "quantization='auto' measures classes (scores or logits) and "
                "vectors of whole examples, and the outputs of "
                f"'{signature.model.name}' are neither: "
                f"{', '.join(outputs[0])}. Give a mode, such as "
                "quantization='int8-weights', or a recipe of ai-edge-quantizer"
            )
        for each in outputs:
            for name in self.kinds:
                if not np.isfinite(each[name].astype("float64")).all():
                    raise ValueError(
                        "quantization='auto' needs `samples` for which the "
                        f"model's outputs are finite. Received: NaN or "
                        f"infinity in '{name}'"
                    )

    @property
    def measures(self) -> dict[str, str]:
        """How each output is compared, as text."""
        return {name: _MEASURES[kind] for name, kind in self.kinds.items()}

    def loss(
        self, wanted: Sequence[Mapping[str, Any]], got: Sequence[Any]
    ) -> float:
        """Returns the mean loss of some examples' outputs, over all kinds.

        It is smooth, where `kept` counts: of vectors 1 minus the cosine, of
        logits the KL divergence, of scores half the sum of squared differences.
        """
        total = 0.0
        for one, other in zip(wanted, got, strict=True):
            for name, kind in self.kinds.items():
                if kind in (LOGITS, VECTORS):
                    found = _losses(kind, one[name], other[name])
                else:
                    difference = one[name].astype("float64") - other[name]
                    found = np.sum(difference**2, axis=-1) / 2
                is_whole = np.isfinite(other[name].astype("float64")).all()
                total += float(np.mean(found)) if is_whole else math.inf
        return total / len(wanted)

    def kept(self, got: Sequence[Any]) -> np.ndarray:
        """Returns what each output keeps in each example, from 0 to 1."""
        return np.array(
            [
                self._recall(name, got)
                if kind == VECTORS
                else [
                    np.mean(
                        _choice(one[name], kind) == _choice(other[name], kind)
                    )
                    for one, other in zip(self.outputs, got, strict=True)
                ]
                for name, kind in self.kinds.items()
            ]
        )

    def _recall(self, name: str, got: Sequence[Any]) -> np.ndarray:
        """Returns each vector's share of nearest ones that stay so.

        A vector is searched among all others. One that is as near as the tenth
        nearest, such as that of an equal text, is right too.
        """
        own, other = (
            _unit(np.concatenate([each[name] for each in outputs]))
            for outputs in (self.outputs, got)
        )
        found = []
        for start in range(0, len(own), 256):  # to save memory
            rows = np.arange(start, min(start + 256, len(own)))
            wanted, nearest = own[rows] @ own.T, other[rows] @ other.T
            for scores in (wanted, nearest):
                scores[np.arange(len(rows)), rows] = -np.inf
            least = np.partition(wanted, -_NEAREST, axis=1)[:, -_NEAREST]
            places = np.argpartition(-nearest, _NEAREST, axis=1)[:, :_NEAREST]
            right = np.take_along_axis(wanted, places, axis=1)
            found.append(np.mean(right >= least[:, None] - 1e-6, axis=1))
        return np.concatenate(found)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.nan_to_num(vectors.astype("float64"))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: np.ndarray = vectors / np.where(lengths > 0, lengths, 1)
    return result


def _choice(values: np.ndarray, kind: str) -> np.ndarray:
    found: np.ndarray = (
        values > 0.5 if kind == _YES_NO else np.argmax(values, axis=-1)
    )
    return found


@dataclasses.dataclass
class _Weight:
    """A weight of a file of float32.

    Attributes:
        name: Its path in the model, or else the operator that reads it.
        numbers: How many numbers it has.
        operators: The kind and the output of each operator that reads it.
        modes: The modes that it can have, from the fewest bits to the most.
        losses: What each of them loses, never less than the next one.
    """

    name: str
    numbers: int
    operators: list[tuple[str, str]]
    modes: list[str]
    losses: list[float] = dataclasses.field(default_factory=list)


class _Trial:
    """A file that is written, and run in a worker, again and again."""

    def __init__(self, signature: Signature, model: Any, path: Path) -> None:
        self._signature, self._model, self._path = signature.name, model, path

    def write(self, recipe: Sequence[Mapping[str, Any]]) -> int:
        """Writes the file by a recipe; returns its size in bytes."""
        model = self._model
        if recipe:
            model = round_by_recipe(model, recipe)
        write(model, self._path)
        return self._path.stat().st_size

    def run(
        self, examples: Sequence[Inputs], step: Any = None, name: str = ""
    ) -> list[Mapping[str, Any]]:
        """Returns its outputs for each example, and shows how many are done.

        Raises:
            ExportError: It cannot be run.
        """
        cases = [(self._signature, inputs) for inputs in examples]
        show = None
        if step is not None:
            show = counted(step, name, len(examples), "samples")
        run = functools.partial(
            run_model, "litert", self._path, cases, _LIMITS, times=1, show=show
        )
        try:
            response = run()
        except ExportVerificationError:  # as on a machine that was halted
            response = run()
        for case in response["cases"]:
            if "error" in case:
                raise ExportError(f"LiteRT cannot run it: {case['error']}")
        return [case["outputs"] for case in response["cases"]]

    def measure(
        self,
        weight: _Weight,
        examples: Sequence[Inputs],
        own: Sequence[Mapping[str, Any]],
        quality: _Quality,
    ) -> None:
        """Measures what each mode of a weight loses; leaves out useless ones.

        What float16 loses is too little to be measured so.
        """
        found = {}
        for mode in weight.modes:
            if mode in ("float16", "float32"):
                found[mode] = 0.0
                continue
            try:
                self.write([*_entries(weight, mode)])
                found[mode] = quality.loss(own, self.run(examples))
            except ExportError:  # the quantizer or the runtime lacks the mode
                continue
        weight.modes = [mode for mode in found if found[mode] < math.inf]
        most = np.maximum.accumulate([found[x] for x in weight.modes[::-1]])
        weight.losses = most[::-1].tolist()


def _weights(model: Any, signature: Signature) -> Iterator[_Weight]:
    """Yields the weights of a file, with the modes that they may have."""
    kinds, variables = operators_of(model), variables_of([signature], model)
    readers: dict[int, list[tuple[str, str]]] = {}
    shapes: dict[int, Any] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            place = place_of(kind, operator)
            if place is not None:
                tensor = graph.tensors[operator.inputs[place]]
                output = graph.tensors[operator.outputs[0]]
                readers.setdefault(tensor.buffer, []).append(
                    (_NAMES.get(kind, kind), bytes(output.name).decode())
                )
                shapes[tensor.buffer] = tuple(map(int, tensor.shape))
    for buffer in sorted(weights_of(model)):
        values = model.buffers[buffer].data.view("float32")
        found = {kind for kind, _ in readers[buffer]}
        modes = []
        if found <= _IN_BLOCKS and shapes[buffer][-1] % 32 == 0:
            modes.append("int4")
        if found <= _IN_INT8:
            modes.append("int8")
            if found != {"EMBEDDING_LOOKUP"}:  # which has no product
                modes.append("int8-weights")
        most = max(-values.min(), values.max())
        if found <= _IN_FLOAT16 and most <= np.finfo("float16").max:
            modes.append("float16")
        yield _Weight(
            variables[buffer].path
            if buffer in variables
            else readers[buffer][0][1],
            values.size,
            readers[buffer],
            [*modes, "float32"],
        )


def _entries(weight: _Weight, mode: str) -> Iterator[dict[str, Any]]:
    """Yields the entries of a recipe for a weight in a mode."""
    for kind, output in weight.operators:
        # ai-edge-quantizer calls an operator by the name of its output, and
        # ends it by a semicolon.
        regex = f"^{re.escape(output)};?$"
        if mode == "int4":
            yield {**in_blocks(kind), "regex": regex}
        elif mode != "float32":
            is_float = mode == "float16"
            is_product = mode == "int8"
            yield {
                "regex": regex,
                "operation": kind,
                "algorithm_key": "float_casting"
                if is_float
                else "min_max_uniform_quantize",
                "op_config": {
                    "weight_tensor_config": {
                        "num_bits": 16 if is_float else 8,
                        "symmetric": True,
                        "granularity": "TENSORWISE"
                        if is_float or kind == "BATCH_MATMUL"
                        else "CHANNELWISE",
                        "dtype": "FLOAT" if is_float else "INT",
                    },
                    "compute_precision": "INTEGER" if is_product else "FLOAT",
                    "explicit_dequantize": not is_product,
                    "skip_checks": False,
                    "min_weight_elements": SMALLEST,
                },
            }


def _recipe(
    weights: Sequence[_Weight], levels: Sequence[int]
) -> list[dict[str, Any]]:
    """Returns the recipe that gives each weight its mode."""
    return [
        entry
        for weight, level in zip(weights, levels, strict=True)
        for entry in _entries(weight, weight.modes[level])
    ]


def _sequence(weights: Sequence[_Weight]) -> Iterator[list[int]]:
    """Yields each weight's place in its modes, from the smallest file on.

    In each step, one weight gets more bits: that which loses most for each bit.
    """
    levels = [0] * len(weights)
    yield [*levels]

    def gains() -> Iterator[tuple[float, int, int]]:
        for index, (weight, level) in enumerate(
            zip(weights, levels, strict=True)
        ):
            for higher in range(level + 1, len(weight.modes)):
                bits = [_BITS[weight.modes[x]] for x in (level, higher)]
                gain = weight.losses[level] - weight.losses[higher]
                more = (bits[1] - bits[0]) * weight.numbers
                yield gain / more, -index, higher

    while found := max(gains(), default=None):
        _, index, higher = found
        levels[-index] = higher
        yield [*levels]


def _next(
    weights: Sequence[_Weight], recipes: Sequence[Sequence[int]], index: int
) -> int:
    """Returns the next recipe of a sequence that loses a tenth less."""

    def loss(place: int) -> float:
        levels = zip(weights, recipes[place], strict=True)
        return sum(weight.losses[level] for weight, level in levels)

    later = range(index + 1, len(recipes))
    return next(
        (place for place in later if loss(place) <= 0.9 * loss(index)),
        len(recipes) - 1,
    )
