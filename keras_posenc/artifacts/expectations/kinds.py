"""What an output is, by which a quantized file's output is compared.

A file that rounds its weights moves every number a little. What matters of
that is the largest of scores, the distribution that logits stand for, and the
direction of a vector.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.signatures.naming import named_outputs, output_of
from keras_posenc.artifacts.signatures.signature import Signature
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
    signature: Signature, answers: Sequence[Mapping[str, Any]]
) -> dict[str, Kind]:
    """The kind of each output that has one.

    Outputs of one number for each example have none, nor integers, strings and
    those whose last axis varies.

    Args:
        signature: Whose outputs they are.
        answers: What its model gives, by name.
    """
    kinds = {}
    for name in answers[0] if answers else ():
        values = [each[name] for each in answers]
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
