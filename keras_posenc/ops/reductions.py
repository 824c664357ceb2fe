"""Reductions that also work on empty tensors, and unit vectors."""

from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import is_exported_to, is_in_graph

# Powers of two, by which no digit changes: squares of float32 numbers within
# these limits, and their sums, are float32 numbers.
_LIMIT, _SCALE = 2.0**50, 2.0**80


def largest(x: Any, axis: Any, *, keepdims: bool = False) -> Any:
    """Returns `ops.max`, or 0 where there are no numbers."""
    # A maximum of nothing is an error on some backends, a sum is 0. In a graph
    # without static sizes the operator itself does not fail.
    reduce = ops.sum if 0 in x.shape else ops.max
    return reduce(x, axis=axis, keepdims=keepdims)


def smallest(x: Any, axis: Any, *, keepdims: bool = False) -> Any:
    """Returns `ops.min`, or 0 where there are no numbers."""
    reduce = ops.sum if 0 in x.shape else ops.min
    return reduce(x, axis=axis, keepdims=keepdims)


def sums_of_segments(x: Any, segment_ids: Any, *, count: Any) -> Any:
    """Returns `ops.segment_sum` of `count` segments, which may be 0."""
    if 0 in x.shape:
        return ops.zeros((count, *x.shape[1:]), x.dtype)
    if is_exported_to("litert") and is_in_graph(x):
        # LiteRT knows the size of its `segment_sum` only after the sum.
        return ops.scatter(
            ops.expand_dims(segment_ids, -1), x, (count, *ops.shape(x)[1:])
        )
    return ops.segment_sum(x, segment_ids, num_segments=count)


def unit_vectors(vectors: Any) -> Any:
    """Returns vectors of length 1, in float32 or higher; zeros stay zeros."""
    x = ops.cast(vectors, keras.backend.result_type(vectors.dtype, "float32"))
    size = largest(ops.absolute(x), axis=-1, keepdims=True)
    scale = ops.where(size > _LIMIT, 1 / _SCALE, 1.0)
    scale = ops.where(size < 1 / _LIMIT, _SCALE, scale)
    x = x * ops.cast(scale, x.dtype)
    total = ops.sum(ops.square(x), axis=-1, keepdims=True)
    # Replaced before the root, whose gradient at 0 is infinite.
    total = ops.where(total > 0, total, ops.ones_like(total))
    return x / ops.sqrt(total)
