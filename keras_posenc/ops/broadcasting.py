"""Outer axes: their sizes, and what is broadcast along them."""

from collections.abc import Sequence
from typing import Any

from keras import ops


def outer_sizes(x: Any) -> Sequence[Any]:
    """The sizes of all axes but the last, for a reshape to `(*sizes, width)`.

    One that is unknown is -1: to read a shape takes a graph several operators,
    as often as it is read.
    """
    sizes = list(x.shape[:-1])
    if sizes.count(None) > 1 or 0 in sizes:
        return ops.shape(x)[:-1]
    return [-1 if size is None else size for size in sizes]


def spread(x: Any, outer: Sequence[Any]) -> Any:
    """`(..., width)` to `(*outer, width)`, by the rules of broadcasting.

    LiteRT copies what is broadcast number by number, and adds 60 times as fast.
    """
    return x + ops.zeros((*outer, 1), x.dtype)
