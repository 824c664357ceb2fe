"""Which tokens are real, and which may attend to which.

True means a real token, or a query that may attend to a key.
"""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.arguments import check_mask


class _CarriedMask(keras.Layer):
    def __init__(self) -> None:
        super().__init__(name="carried_mask", autocast=False)
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        return mask

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return None


_carried_mask = _CarriedMask()


def resolve_mask(mask: Any, inputs: Any) -> Any:
    """The mask given, else the one that Keras attached to `inputs`, or None.

    Keras fills a layer's `mask` only where the layer is called with a single
    tensor: with a `positions` tensor beside the inputs it is silently None.
    So we ask again, by a layer that takes one tensor, which is Keras's public
    way to read the mask that a tensor carries.

    Raises:
        ValueError: A given mask of reals.
    """
    check_mask("mask", mask)
    if mask is None:
        mask = _carried_mask(inputs)
    return None if mask is None else ops.cast(mask, "bool")


def hide_masked(positions: Any, *masks: Any) -> Any:
    """Positions with 0 where any of the `(batch, seq)` masks, or None, says so.

    Padding stands nowhere: it lengthens no row, and what a position of NaN, or
    out of range, would make of it must not reach a token, not even times 0.
    """
    for mask in masks:
        if mask is not None:
            if not hasattr(positions, "dtype"):
                positions = np.asarray(positions)  # reals stay float64
            positions = ops.where(
                ops.cast(mask, "bool"), positions, ops.zeros_like(positions)
            )
    return positions


def hide_padding(x: Any, mask: Any) -> Any:
    """`(..., dim)` with 0 where a mask of shape `(...)` is False.

    Selected and not multiplied: padding may hold NaN, of which no product is
    0, neither a weight of 0 times a value nor a gradient of 0 times an input.
    """
    return ops.where(ops.expand_dims(mask, -1), x, ops.zeros_like(x))


def combine_masks(
    *,
    mask: Any = None,
    padding_mask: Any = None,
    attention_mask: Any = None,
    segment_ids: Any = None,
    causal_length: Any = None,
    rows: Any = None,
) -> Any:
    """One mask for attention scores of shape `(batch, heads, query, key)`.

    Args:
        mask: Bool `(batch, key)`: which keys are real tokens.
        padding_mask: The same, from another source.
        attention_mask: Bool `(batch, query, key)`.
        segment_ids: Integers `(batch, seq)`: a token attends to its own
            segment only.
        causal_length: If given, the length of a sequence whose tokens attend
            to themselves and to what is before them.
        rows: Integers `(query,)`: which tokens are the queries; by default all
            of them.

    Returns:
        Bool tensor that broadcasts to `(batch, heads, query, key)`, or None if
        everything may attend to everything.
    """

    def queries(x: Any) -> Any:
        """Of one row for each token, those of the queries."""
        return x if rows is None else ops.take(x, rows, axis=1)

    masks = [
        ops.expand_dims(ops.cast(keys, "bool"), (1, 2))
        for keys in (mask, padding_mask)
        if keys is not None
    ]
    if attention_mask is not None:
        masks.append(
            ops.expand_dims(queries(ops.cast(attention_mask, "bool")), 1)
        )
    if segment_ids is not None:
        # (batch, seq) -> (batch, 1, seq, 1) == (batch, 1, 1, seq)
        masks.append(
            ops.equal(
                ops.expand_dims(queries(segment_ids), (1, 3)),
                ops.expand_dims(segment_ids, (1, 2)),
            )
        )
    if causal_length is not None:
        index = ops.expand_dims(ops.arange(causal_length, dtype="int32"), 0)
        masks.append(
            ops.greater_equal(
                ops.expand_dims(queries(index), (1, 3)),
                ops.expand_dims(index, (1, 2)),
            )
        )
    if not masks:
        return None
    return functools.reduce(ops.logical_and, masks)
