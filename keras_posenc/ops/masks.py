"""Masks of real tokens, and of the keys that queries may attend to.

True means a real token, or a query that may attend to a key.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.arguments import check_mask


class _CarriedMask(keras.Layer):
    def __init__(self) -> None:
        super().__init__(name="carried_mask", autocast=False)
        self.supports_masking = True

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        return mask

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return None


_carried_mask = _CarriedMask()


def resolve_mask(mask: Any, inputs: Any) -> Any:
    """Returns the mask given, else the one that `inputs` carry, or None.

    Keras fills a layer's `mask` only where the layer is called with a single
    tensor: with a `positions` tensor in addition it is silently None. So we
    call a layer with one tensor: Keras's public way to read a tensor's mask.
    """
    check_mask("mask", mask)
    if mask is None:
        mask = _carried_mask(inputs)
    return None if mask is None else ops.cast(mask, "bool")


def hide_masked(positions: Any, *masks: Any) -> Any:
    """Replaces positions by 0 where any of the masks, `(batch, seq)`, is False.

    Positions are `(batch, seq)`, or vectors, `(batch, seq, axes)`.

    Padding has no position: it must not make a row longer, and a position of
    NaN, or out of range, must not reach a token, not even times 0.
    """
    for mask in masks:
        if mask is not None:
            if not hasattr(positions, "dtype"):
                positions = np.asarray(positions)  # floats stay float64
            mask = ops.cast(mask, "bool")
            if len(positions.shape) == 3:  # vectors
                mask = ops.expand_dims(mask, -1)
            positions = ops.where(mask, positions, ops.zeros_like(positions))
    return positions


def hide_padding(x: Any, mask: Any) -> Any:
    """Replaces `(..., dim)` by 0 where a mask of shape `(...)` is False.

    By selection, not by a product: padding may hold NaN, and NaN times 0 is
    NaN, both in a value with weight 0 and in a gradient.
    """
    return ops.where(ops.expand_dims(mask, -1), x, ops.zeros_like(x))


@dataclasses.dataclass(frozen=True)
class Side:
    """What attention knows about the tokens on one of its two sides.

    In self-attention both sides are the same. They differ where one sequence
    attends to another, or new tokens to cached ones.

    Attributes:
        length: How many tokens, an integer or a scalar tensor.
        tokens: Bool `(batch, length)`: which are not padding; None for all.
        positions: Their positions, `(1, length)` or `(batch, length)`, with a
            third axis where they are vectors; None where nothing uses them.
        segment_ids: Integers `(batch, length)`, or None.
        index: Integers `(length,)`: the order of the tokens, common to both
            sides; by default 0, 1, 2 ... Causality depends on it, not on
            positions, which may start again in each row.
        places: Integers `(batch, length)`: the place of each token among those
            of its row, which windows count in; by default the `index`.
        known: What attention positions keep for the blocks that follow: see
            `AttentionPosition.turned`.
    """

    length: Any
    tokens: Any = None
    positions: Any = None
    segment_ids: Any = None
    index: Any = None
    places: Any = None
    # Not copied: tensors of a function that is traced must stay within it.
    known: dict[Any, Any] = dataclasses.field(
        default_factory=dict, init=False, compare=False
    )

    def some(self, rows: Any) -> "Side":
        """Returns the side of some of the tokens: integers `(rows,)`."""

        def some(x: Any) -> Any:
            return None if x is None else ops.take(x, rows, axis=1)

        return Side(
            length=ops.shape(rows)[0],
            tokens=some(self.tokens),
            positions=some(self.positions),
            segment_ids=some(self.segment_ids),
            places=some(self.places),
            index=rows if self.index is None else ops.take(self.index, rows),
        )


def combine_masks(
    *,
    queries: Side,
    keys: Side,
    attention_mask: Any = None,
    causal: bool = False,
    window: int | None = None,
) -> Any:
    """Returns a mask that broadcasts to `(batch, heads, query, key)`, or None.

    Tokens attend to keys of their own segment, if both sides have
    `segment_ids`, and not to padding. Causality is by the `index` of both
    sides, a window by their `places` or, without these, their `index`.
    """
    masks = []
    if keys.tokens is not None:
        masks.append(ops.expand_dims(ops.cast(keys.tokens, "bool"), (1, 2)))
    if attention_mask is not None:
        masks.append(ops.expand_dims(ops.cast(attention_mask, "bool"), 1))
    if queries.segment_ids is not None and keys.segment_ids is not None:
        masks.append(_pairs(ops.equal, queries.segment_ids, keys.segment_ids))
    if causal or window is not None:
        query_index = _index(queries)
        key_index = query_index if keys is queries else _index(keys)
        if causal:
            masks.append(_pairs(ops.greater_equal, query_index, key_index))
        if window is not None:
            if queries.places is not None and keys.places is not None:
                query_index, key_index = queries.places, keys.places
            apart = ops.absolute(_pairs(ops.subtract, query_index, key_index))
            masks.append(ops.less_equal(apart, window))
    if not masks:
        return None
    return functools.reduce(ops.logical_and, masks)


def _pairs(compare: Callable[..., Any], queries: Any, keys: Any) -> Any:
    """Compares (batch, query) and (batch, key): (batch, 1, query, key)."""
    return compare(
        ops.expand_dims(queries, (1, 3)), ops.expand_dims(keys, (1, 2))
    )


def _index(side: Side) -> Any:
    """Returns the order of the tokens of a side: (1, length)."""
    index = side.index
    if index is None:
        index = ops.arange(side.length, dtype="int32")
    return ops.expand_dims(index, 0)
