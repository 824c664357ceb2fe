"""Reductions, also of nothing, where Keras's are errors on some backends."""

from typing import Any

from keras import ops


def largest(x: Any, axis: Any, *, keepdims: bool = False) -> Any:
    """`ops.max`; where `x` holds no number, 0 for each that is asked for."""
    # Of nothing a sum is 0 on every backend, and a maximum an error. A graph
    # that does not know the sizes has an operator that does not mind.
    reduce = ops.sum if 0 in x.shape else ops.max
    return reduce(x, axis=axis, keepdims=keepdims)


def smallest(x: Any, axis: Any, *, keepdims: bool = False) -> Any:
    """`ops.min`, likewise."""
    reduce = ops.sum if 0 in x.shape else ops.min
    return reduce(x, axis=axis, keepdims=keepdims)


def sums_of_segments(x: Any, segment_ids: Any, *, count: Any) -> Any:
    """`ops.segment_sum` of so many segments."""
    if 0 in x.shape:
        return ops.zeros((count, *x.shape[1:]), x.dtype)
    return ops.segment_sum(x, segment_ids, num_segments=count)
