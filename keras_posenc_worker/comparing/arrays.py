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


def told(place: str, one: Any, other: Any) -> str:
    """In what an array that stands in a place is not the one wanted.

    Args:
        place: What to call it.
        one: The array that is wanted.
        other: The array that is found, with other bytes.
    """
    import numpy as np

    kinds = [f"{each.dtype} of shape {each.shape}" for each in (other, one)]
    if kinds[0] != kinds[1]:
        return f"{place} is {kinds[0]}, not {kinds[1]}"
    theirs, ours = (each.reshape(-1, 1) for each in (other, one))
    if one.dtype == object:  # strings
        is_other = theirs != ours
    else:  # NaN, and zeros of both signs, as they are written
        bits = [np.ascontiguousarray(x).view("uint8") for x in (theirs, ours)]
        is_other = bits[0] != bits[1]
    found = np.flatnonzero(is_other.any(axis=-1))
    if not found.size:
        return f"{place} has another scale"
    first = found[0]
    values = f"{theirs[first].item()!r}, not {ours[first].item()!r}"
    if one.size == 1:
        return f"{place} is {values}"
    where = [int(i) for i in np.unravel_index(first, one.shape)]
    return (
        f"{place} has other numbers: {found.size} of {one.size} differ, the "
        f"first, at {where}, is {values}"
    )


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
