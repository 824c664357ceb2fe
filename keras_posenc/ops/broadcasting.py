"""Axes before the last: their sizes, and broadcasting along them."""

from collections.abc import Sequence
from typing import Any

from keras import ops


def outer_sizes(x: Any) -> Sequence[Any]:
    """Returns the sizes of all axes but the last, for a reshape.

    An unknown size is -1 if it is the only one: reading a shape adds several
    operators to a graph each time.
    """
    sizes = list(x.shape[:-1])
    if sizes.count(None) > 1 or 0 in sizes:
        return ops.shape(x)[:-1]
    return [-1 if size is None else size for size in sizes]


def spread(x: Any, outer: Sequence[Any]) -> Any:
    """Broadcasts `(..., width)` to `(*outer, width)`.

    By an addition: LiteRT adds 60 times as fast as it broadcasts.
    """
    return x + ops.zeros((*outer, 1), x.dtype)
