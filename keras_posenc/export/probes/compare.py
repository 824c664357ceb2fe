"""How far two sets of outputs are apart."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.from_model import named_outputs, output_of
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_behind, tensors_behind

SCORES, LOGITS, VECTORS = "scores", "logits", "vectors"
MOVED = (LOGITS, VECTORS)  # whose rows have `losses`

# Of probabilities in float16, from 0, 1 or their sum.
_SLACK = 1e-2

# Vectors shorter than this, of the longest one, have no direction to keep.
SHORTEST = 0.05

# What passes on what it is given.
_PASSING = (keras.layers.Dropout, keras.layers.Identity)
_LINEAR = (keras.layers.Dense, keras.layers.EinsumDense)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What an output is, and why it is taken for that, in words."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


def kinds_of(
    signature: Signature, outputs: Sequence[Mapping[str, Any]]
) -> dict[str, Kind]:
    """The kind of each output that has one.

    Outputs of one number for each example have none, nor integers, strings and
    those whose last axis varies.

    Args:
        signature: Whose outputs they are.
        outputs: Those of its model, by name.
    """
    kinds = {}
    for name in outputs[0] if outputs else ():
        values = [each[name] for each in outputs]
        widths = {value.shape[-1] if value.ndim > 1 else 1 for value in values}
        if "float" not in values[0].dtype.name or len(widths) > 1:
            continue
        if widths != {1}:
            kinds[name] = _kind(values, _maker(signature, name))
    return kinds


def _kind(values: Sequence[np.ndarray], maker: Any) -> Kind:
    """The kind of an output, by its values and the layer that makes it."""
    is_in_unit, sums_to_one, has_unit_length = (
        all(facts) for facts in zip(*map(_facts, values), strict=True)
    )
    activation = getattr(maker, "activation", None)
    if is_in_unit and sums_to_one:
        return Kind(SCORES, "they add up to 1")
    if is_in_unit and activation is keras.activations.sigmoid:
        return Kind(SCORES, "made by a sigmoid")
    if has_unit_length:
        return Kind(VECTORS, "their length is 1")
    made = type(maker).__name__
    if isinstance(maker, _LINEAR) and activation in (
        None,
        keras.activations.linear,
    ):
        return Kind(LOGITS, f"made by a {made} layer without activation")
    if maker is None:
        return Kind(VECTORS, "nothing tells that they are scores")
    return Kind(VECTORS, f"made by {made}")


def _facts(value: np.ndarray) -> tuple[bool, bool, bool]:
    """Whether the rows are from 0 to 1, add up to 1, and have the length 1.

    Rows of zeros, as padding may have, have no length.
    """
    rows = value.astype("float64").reshape(-1, value.shape[-1])
    rows = rows[np.isfinite(rows).all(axis=-1)]
    lengths = np.linalg.norm(rows, axis=-1)

    def is_one(sizes: np.ndarray) -> bool:
        return bool(np.allclose(sizes, 1, rtol=0, atol=_SLACK))

    return (
        bool(((rows >= -_SLACK) & (rows <= 1 + _SLACK)).all()),
        is_one(rows.sum(axis=-1)),
        is_one(lengths[lengths > 0]),
    )


def _maker(signature: Signature, name: str) -> Any:
    """The layer or operation that makes an output; None where nobody knows."""
    model = signature.model
    own_name = signature.own_names.get(name, name)
    if not getattr(model, "inputs", None):
        return model.layers[-1] if getattr(model, "layers", None) else None
    tensor = named_outputs(model, output_of(model)).get(own_name)
    while tensor is not None:
        maker = layer_behind(tensor)
        if getattr(maker, "inputs", None) and len(maker.outputs) == 1:
            tensor = maker.outputs[0]  # of a model within the model
        elif isinstance(maker, _PASSING) or (
            isinstance(maker, keras.layers.Activation)
            and maker.activation is keras.activations.linear
        ):
            (tensor,) = tensors_behind(tensor)
        else:
            return maker
    return None


def losses(kind: str, wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """What each row of an output has lost.

    Args:
        kind: `LOGITS` or `VECTORS`.
        wanted: The output as it should be, of `(..., width)`.
        got: Another one, of the same shape.

    Returns:
        For each row that is compared, float64: of vectors 1 less the cosine,
        of logits the KL divergence in nats. Both grow with the square of a
        small movement: half of it, relative to the vector's length, or in
        units of the logits.
    """
    width = wanted.shape[-1]
    rows = [x.astype("float64").reshape(-1, width) for x in (wanted, got)]
    finite = np.isfinite(rows).all(axis=(0, -1))
    wanted, got = rows[0][finite], rows[1][finite]
    if kind == LOGITS:
        logs, others = _log_softmax(wanted), _log_softmax(got)
        divergence = np.sum(np.exp(logs) * (logs - others), axis=-1)
        return np.maximum(divergence, 0.0)
    lengths = np.linalg.norm(wanted, axis=-1)
    kept = lengths > SHORTEST * np.max(lengths, initial=0.0)
    wanted, got = wanted[kept], got[kept]
    product = lengths[kept] * np.linalg.norm(got, axis=-1)
    cosines = np.sum(wanted * got, axis=-1) / np.where(product > 0, product, 1)
    return np.clip(1 - cosines, 0.0, 2.0)


def rounding(kind: str, wanted: np.ndarray, tolerance: float) -> float:
    """How far float32 may move a row, in the unit of `movement`.

    Each number may move by the tolerance, relative to itself or to 1: of a
    vector that is `SHORTEST` of the longest, `sqrt(width)` of these.
    """
    if kind == VECTORS:
        return float(np.sqrt(wanted.shape[-1])) * tolerance / SHORTEST
    finite = np.abs(wanted[np.isfinite(wanted)].astype("float64"))
    return 2 * tolerance * float(np.max(finite, initial=1.0))


def movement(loss: float) -> float:
    """How far a row has moved that has lost so much: see `losses`."""
    return float(np.sqrt(2 * loss))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


@dataclasses.dataclass(frozen=True)
class Loss:
    """What rows of one kind have lost: see `kinds.losses`.

    Attributes:
        most: The row that has lost most.
        total: All of them together.
        rows: How many there are.
    """

    most: float = 0.0
    total: float = 0.0
    rows: int = 0

    @classmethod
    def of(cls, found: np.ndarray) -> Self:
        """That of some rows."""
        return cls(
            float(np.max(found, initial=0.0)), float(np.sum(found)), found.size
        )

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(
            max(self.most, other.most),
            self.total + other.total,
            self.rows + other.rows,
        )


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far some outputs are from those wanted.

    Attributes:
        worst: The largest difference, relative as for `verify`; infinite where
            shapes differ.
        where: Where it is: the output's name and index.
        example: The first number of that index.
        mean: The mean of the differences of all numbers.
        agreeing: How many rows have their largest entry at the wanted place,
        rows: of how many rows of more than one entry.
        kept: The same of those rows alone in which the wanted entry leads the
        decided: others by more than the given lead.
        lost: By kind, of logits and vectors: what their rows have lost.
    """

    worst: float = 0.0
    where: str = ""
    mean: float = 0.0
    agreeing: int = 0
    rows: int = 0
    kept: int = 0
    decided: int = 0
    example: int | None = None
    lost: dict[str, Loss] = dataclasses.field(default_factory=dict)


def difference(
    wanted: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    scales: Mapping[str, float],
    rounded: bool = False,
    margin: float = 0.0,
    kinds: Mapping[str, Kind] | None = None,
) -> Difference:
    """Compares outputs by their names.

    Args:
        wanted: The outputs as they should be.
        got: Others, under the same names.
        scales: The size of each output's numbers.
        rounded: Whether integers may differ, as an arg-max does where two
            scores are all but equal: what counts is the share that does.
        lead: By how much the largest entry of a row must lead the others for
            the row to be decided, relative as differences are.
        kinds: What the outputs are that have a kind.
    """
    worst, where = 0.0, ""
    example: int | None = None
    total, numbers = 0.0, 0
    agreeing, rows, kept, decided = 0, 0, 0, 0
    lost: dict[str, Loss] = {}
    for name, right in wanted.items():
        found = got[name]
        distances = _distances(right, found, scales[name])
        if rounded and distances is not None and not _is_float(right):
            distances = np.full_like(distances, np.mean(distances > 0))
        if distances is None:
            return Difference(math.inf, name)
        if distances.size == 0:
            continue
        index = np.unravel_index(np.argmax(distances), distances.shape)
        if distances[index] > worst or not where:
            worst = float(distances[index])
            where = f"{name}{[int(i) for i in index]}"
            example = int(index[0]) if index else None
        if not _is_float(right):
            continue
        total += float(np.sum(distances))
        numbers += distances.size
        kind = kinds[name].name if kinds and name in kinds else None
        if kind in (LOGITS, VECTORS):
            loss = Loss.of(losses(kind, right, found))
            lost[kind] = lost.get(kind, Loss()) + loss
        if kind in (SCORES, LOGITS):
            same = np.argmax(right, axis=-1) == np.argmax(found, axis=-1)
            agreeing += int(np.sum(same))
            rows += same.size
            is_decided = _leads(right, scales[name]) > margin
            kept += int(np.sum(same & is_decided))
            decided += int(np.sum(is_decided))
    mean = total / max(numbers, 1)
    return Difference(
        worst, where, mean, agreeing, rows, kept, decided, example, lost
    )


def scales_of(outputs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the size of each output's numbers, from 0.01 to 1, by name."""
    scales: dict[str, float] = {}
    for each in outputs:
        for name, value in each.items():
            numbers = np.zeros(0)
            if "float" in value.dtype.name:
                numbers = np.abs(value.astype("float64"))
            largest = np.max(numbers[np.isfinite(numbers)], initial=0.01)
            scales[name] = min(1.0, max(scales.get(name, 0.01), largest))
    return scales


class Columns:
    """What of each output's columns no tolerance of the whole output shows.

    A column is what has one index along the last axis. Beside one of 1, one of
    1e-6 may be anything: its sign passes for rounding.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[np.ndarray]] = {}
        self._scales: dict[str, float] = {}

    def add(
        self, name: str, wanted: np.ndarray, got: np.ndarray, scale: float
    ) -> None:
        """Takes one more batch of the output of that name and scale."""
        self._scales[name] = scale
        if not _is_float(wanted) or wanted.ndim < 2 or not wanted.size:
            return
        rows = [
            values.astype("float64").reshape(-1, wanted.shape[-1])
            for values in (wanted, got)
        ]
        with np.errstate(invalid="ignore"):  # an infinity less itself
            found = [np.abs(rows[0]), np.abs(rows[0] - rows[1])]
        self._found.setdefault(name, []).append(
            np.array([np.max(values, axis=0) for values in found])
        )

    def unchecked(self, tolerance: float) -> dict[str, list[int]]:
        """By output, the columns of which not two digits were shown.

        Those that pass, although they differ by more than a hundredth of their
        own largest number: beside the others it is small enough.
        """
        unseen = {}
        for name, found in self._found.items():
            if len({columns.shape for columns in found}) > 1:
                continue  # along an axis of any length there are no columns
            sizes, differences = np.max(found, axis=0)
            passing = differences <= tolerance * self._scales[name]
            small = np.flatnonzero(passing & (differences > 0.01 * sizes))
            if small.size:
                unseen[name] = small.tolist()
        return unseen


def _leads(values: np.ndarray, scale: float) -> np.ndarray:
    """By how much the largest of each row leads the second."""
    second, first = np.moveaxis(
        np.sort(values.astype("float64"), axis=-1)[..., -2:], -1, 0
    )
    with np.errstate(invalid="ignore"):  # an infinity less itself
        return (first - second) / np.maximum(scale, np.abs(first))


def _is_float(values: Any) -> bool:
    return "float" in values.dtype.name


def _distances(
    wanted: np.ndarray, got: np.ndarray, scale: float
) -> np.ndarray | None:
    """Differences of two arrays, entry by entry; None for two shapes."""
    if wanted.shape != got.shape:
        return None
    if not _is_float(wanted):
        return np.where(wanted == got, 0.0, np.inf)
    wanted, got = wanted.astype("float64"), got.astype("float64")
    with np.errstate(invalid="ignore"):
        distances = np.abs(wanted - got) / np.maximum(scale, np.abs(wanted))
    same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    distances = np.where(same, 0.0, distances)
    # One NaN beside a number, or infinities that differ.
    return np.where(np.isnan(distances), np.inf, distances)


Outputs = Mapping[str, np.ndarray]

# `retrace(inputs, outputs, tolerance)`: see `Offers.retrace`.
Retrace = Callable[[Inputs, Outputs, float], dict[str, np.ndarray]]

FORCED = 1e6  # a tolerance by which every choice falls so


def retrace_of(signature: Signature) -> Retrace | None:
    """Returns how a model that chooses is run again; else None.

    That is `Offers.retrace`, from arrays to arrays.
    """
    oracle = signature.oracle
    if oracle is not None:
        inner = retrace_of(oracle.base)
        if inner is None:
            return None
        return lambda inputs, outputs, tolerance: oracle.from_base(
            inner(oracle.to_base(inputs), outputs, tolerance)
        )
    method = Offers.of(signature.model).retrace
    if method is None:
        return None
    import tensorflow as tf

    call = tf.function(method, autograph=False, reduce_retracing=True)
    own = signature.own_names

    def retrace(
        inputs: Inputs, outputs: Outputs, tolerance: float
    ) -> dict[str, np.ndarray]:
        with tf.device("CPU:0"):
            found = call(
                {name: tf.constant(value) for name, value in inputs.items()},
                {
                    own.get(name, name): tf.constant(value)
                    for name, value in outputs.items()
                },
                tf.constant(tolerance, "float32"),
            )
        named = {value: name for name, value in own.items()}
        return {
            named.get(name, name): value.numpy()
            for name, value in found.items()
        }

    return retrace


def resolve_ties(
    wanted: Outputs,
    got: Outputs,
    inputs: Inputs,
    retrace: Retrace | None,
    tolerance: float,
) -> tuple[Outputs, int]:
    """Returns the outputs that some others are to be compared with.

    Those wanted, except for rows that chose otherwise, and as the model could
    have: there they are what the model computes for that choice.

    Returns:
        Outputs, and in how many rows they are not the wanted ones.
    """
    choices = [
        name
        for name, value in wanted.items()
        if "float" not in value.dtype.name
    ]
    if (
        retrace is None
        or not choices
        or any(got[name].shape != wanted[name].shape for name in wanted)
        or any(
            (got[name].dtype == object) != (wanted[name].dtype == object)
            for name in wanted
        )
    ):
        return wanted, 0

    def other_rows(outputs: Outputs) -> np.ndarray:
        return np.any(
            [
                _rows(_bytes(outputs[name]) != _bytes(got[name]))
                for name in choices
            ],
            axis=0,
        )

    other = other_rows(wanted)
    if not np.any(other):
        return wanted, 0
    try:
        found = retrace(inputs, got, tolerance)
    except Exception:  # of the model's code, which may not take such outputs
        return wanted, 0
    ties = other & ~other_rows(found)
    if not np.any(ties):
        return wanted, 0
    resolved = {}
    for name, value in wanted.items():
        here = ties.reshape(-1, *[1] * (value.ndim - 1))
        resolved[name] = np.where(here, found[name], value)
    return resolved, int(np.sum(ties))


def _rows(values: np.ndarray) -> np.ndarray:
    """Which rows have a True anywhere."""
    return np.any(values, axis=tuple(range(1, values.ndim)))


def _bytes(values: np.ndarray) -> np.ndarray:
    """Strings as bytes, whatever they were."""
    if values.dtype != object:
        return values
    return np.array(
        [
            each.encode() if isinstance(each, str) else each
            for each in values.ravel()
        ],
        object,
    ).reshape(values.shape)
