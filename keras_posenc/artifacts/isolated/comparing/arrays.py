"""Arrays as a converter may lay them out, round and show them."""

import itertools
from collections.abc import Iterator
from typing import Any

_ROUNDING = 4  # units in the last place: how far processors fold apart


def layouts(array: Any) -> Iterator[Any]:
    """An array with its axes in every order."""
    if array.ndim > 4:
        yield array
        return
    for order in itertools.permutations(range(array.ndim)):
        yield array.transpose(order)


def shown(array: Any) -> str:
    """A number, or what kind of array it is."""
    if array.size == 1:
        return repr(array.item())
    return f"{array.dtype} of shape {array.shape}"


def is_rounding(one: Any, other: Any) -> bool:
    """Whether two arrays may differ by other processors' rounding alone."""
    import numpy as np

    if one.dtype != other.dtype or one.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, NaN
        step = np.spacing(np.maximum(np.abs(one), np.abs(other)))
        return bool(
            np.all(
                (np.abs(one - other) <= _ROUNDING * step)
                | (one == other)
                | (np.isnan(one) & np.isnan(other))
            )
        )
