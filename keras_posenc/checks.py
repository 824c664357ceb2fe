"""Checks of arguments with uniform messages; imports no Keras.

Every message names the argument, what it must be, and what it was.
"""

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any


def is_number(value: Any) -> bool:
    """Returns whether `value` is one number, NumPy's included, and no bool."""
    return not isinstance(value, bool | str | bytes) and (
        hasattr(value, "__float__") and getattr(value, "shape", ()) == ()
    )


def as_integer(value: Any) -> int | None:
    """Returns an integer, NumPy's included, as an `int`; None for all else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def check_integer(name: str, value: Any) -> int:
    """Returns `value` if it is an integer, else raises `ValueError`."""
    number = as_integer(value)
    if number is None:
        raise ValueError(
            f"`{name}` must be an integer. Received: {name}={value!r}"
        )
    return number


def check_positive_int(name: str, value: Any) -> int:
    """Returns `value` if it is an integer above 0, else `ValueError`."""
    number = as_integer(value)
    if number is None or number <= 0:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}"
        )
    return number


def check_count(name: str, value: Any) -> int:
    """Returns `value` if it is an integer from 0 on, else `ValueError`."""
    number = as_integer(value)
    if number is None or number < 0:
        raise ValueError(
            f"`{name}` must be an integer of at least 0. "
            f"Received: {name}={value!r}"
        )
    return number


def check_index(name: str, value: Any, size: int) -> int:
    """Returns `value` if it counts one of `size` things, else `ValueError`."""
    number = as_integer(value)
    if number is None or not 0 <= number < size:
        raise ValueError(
            f"`{name}` must be an integer in [0, {size}). "
            f"Received: {name}={value!r}"
        )
    return number


def check_rate(name: str, value: Any) -> float:
    """Returns `value` if it is a dropout rate in [0, 1), else `ValueError`."""
    if is_number(value) and 0 <= value < 1:
        return float(value)
    raise ValueError(
        f"`{name}` must be a number in [0, 1). Received: {name}={value!r}"
    )


def check_positive(name: str, value: Any) -> float:
    """Returns `value` if it is finite and above 0, else `ValueError`."""
    if is_number(value) and math.isfinite(value) and value > 0:
        return float(value)
    raise ValueError(
        f"`{name}` must be a positive finite number. Received: {name}={value!r}"
    )


def check_not_negative(name: str, value: Any) -> float:
    """Returns `value` if it is a finite number from 0, else `ValueError`."""
    if is_number(value) and 0 <= value < math.inf:
        return float(value)
    raise ValueError(
        f"`{name}` must be a finite number of at least 0. "
        f"Received: {name}={value!r}"
    )


def check_max_wavelength(value: Any) -> float:
    """Returns `value` if it is finite and at least 1, else `ValueError`."""
    if is_number(value) and math.isfinite(value) and value >= 1:
        return float(value)
    raise ValueError(
        "`max_wavelength` must be a finite number of at least 1. "
        f"Received: max_wavelength={value!r}"
    )


def check_bool(name: str, value: Any) -> bool:
    """Returns `value` if it is a bool, else raises `ValueError`."""
    if isinstance(value, bool):
        return value
    raise ValueError(
        f"`{name}` must be True or False. Received: {name}={value!r}"
    )


def check_names(name: str, value: Any, what: str = "strings") -> list[str]:
    """Returns `value` if it is a sequence of strings, else `ValueError`."""
    if isinstance(value, str) or not (
        isinstance(value, Sequence)
        and all(isinstance(each, str) for each in value)
    ):
        raise ValueError(
            f"`{name}` must be a list of {what}. Received: {name}={value!r}"
        )
    return list(value)


def check_each(
    name: str,
    value: Any,
    check: Callable[[str, Any], Any],
    wanted: str,
    count: int | None = None,
) -> tuple[Any, ...] | None:
    """Returns checked numbers, as many as `count` or any; None for None."""
    if value is None:
        return None
    try:
        found = tuple(check(name, each) for each in value)
    except (TypeError, ValueError):
        found = ()
    if found and count in (None, len(found)):
        return found
    raise ValueError(
        f"`{name}` must be None or {wanted}. Received: {name}={value!r}"
    )


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Returns `value` if it is one of `choices`, else raises `ValueError`."""
    # Keras turns "add" from an `.h5` file into its function of that name.
    if inspect.isfunction(value):
        value = value.__name__
    if isinstance(value, str | None) and value in choices:
        return value
    *most, last = [repr(choice) for choice in choices]
    raise ValueError(
        f"`{name}` must be {', '.join(most)} or {last}. "
        f"Received: {name}={value!r}"
    )
