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


def with_one_unknown(sizes: Sequence[Any]) -> Sequence[Any]:
    """The same sizes for a reshape, with -1 for the only one that is unknown.

    Files then have no shape to compute, without which LiteRT leaves a reshape,
    and what is around it, to its fast kernels.
    """
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) != len(sizes) - 1 or 0 in known:
        return sizes
    return [size if isinstance(size, int) else -1 for size in sizes]


def spread(x: Any, outer: Sequence[Any]) -> Any:
    """`(..., width)` to `(*outer, width)`, by the rules of broadcasting.

    LiteRT copies what is broadcast number by number, and adds 60 times as fast.
    """
    return x + ops.zeros((*outer, 1), x.dtype)
