"""Angles of very large positions, exact in fixed point.

A timestamp of today is 1.7e9 seconds. In float32 it is off by up to a minute,
and its product with a frequency loses 31 of the angle's bits. But a sine needs
only the fraction of a turn, which integer arithmetic keeps, on devices without
float64 too. A position is a number in base 256. Digit `d` of weight `256 ** k`
rotates by `d` times the fraction of `256 ** k * frequency`. These fractions are
stored to 2**-40 (or 2**-60) of a turn, in two (or three) integers of 20 bits.
Sums of products of digits and such integers fit int32.

An angle is off by less than 7e-9 radians (9 digits up to 256, each times
2**-41 of a turn), plus the rounding of the dtype: 2**-25 of a turn, and 2**-24
of an angle up to pi for the product with 2 pi and for 2 pi itself. So sines
and cosines in float32 have errors below 6e-7.
"""

import functools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.tables import kept_table, rows_of

# Positions beyond are not encoded. In seconds, they are nine million years.
LIMIT = 2**48

_BITS = 20
_ONE = 2**_BITS


class Digits(NamedTuple):
    """A position in base 256, lowest digit first, and whether it is valid."""

    digits: list[Any]
    lowest: int  # the power of 256 of the first digit
    valid: Any


# For each chunk of 20 bits, highest first, and each digit: integers `(pairs,)`.
Table = list[list[Any]]


def time_digits(positions: Any, *, dtype: str = "float32") -> Digits:
    """Splits integers or floats of any shape into digits.

    Magnitudes beyond 2**48 are not valid.
    """
    high, low, fraction, valid = _split(positions, dtype)
    # Only the highest digit of each group may be outside 0 ... 255. Digits need
    # no carrying: the angle is linear in them.
    digits = []
    for number in (low, high):
        rest = ops.floor_divide(number, 256)
        digits += [
            ops.mod(number, 256),
            ops.mod(rest, 256),
            ops.floor_divide(rest, 256),
        ]
    count = 0
    if fraction is not None:
        count = 6 if dtype == "float64" else 3
        for place in range(count):
            fraction = fraction * 256
            is_last = place == count - 1
            digit = (ops.round if is_last else ops.floor)(fraction)
            fraction = fraction - digit
            digits.insert(0, ops.cast(digit, "int32"))
    return Digits(digits, -count, valid)


def fixed_turns(
    frequencies: Sequence[Fraction], *, digits: Digits, dtype: str
) -> Table:
    """Returns the turns of each digit, for exact turns per unit of position."""
    powers = range(digits.lowest, digits.lowest + len(digits.digits))
    table = _table(tuple(frequencies), tuple(powers), _chunks(dtype))
    return [list(chunk) for chunk in table]


def learned_turns(frequencies: Any, *, digits: Digits, dtype: str) -> Table:
    """Returns the turns of each digit, for a tensor of frequencies, `(pairs,)`.

    No bit of a frequency is lost: fractions of a turn, and products with a
    power of two, are exact in floating point.
    """
    fraction = ops.cast(frequencies, dtype)
    for _ in range(-digits.lowest):
        fraction = fraction / 256
    table: Table = [[] for _ in range(_chunks(dtype))]
    for _ in digits.digits:
        fraction = fraction - ops.round(fraction)
        rest = fraction
        for chunk in table:
            rest = rest * 1024 * 1024
            whole = ops.round(rest)
            rest = rest - whole
            chunk.append(ops.cast(whole, "int32"))
        fraction = fraction * 256
    return table


def angles(digits: Digits, table: Table, *, dtype: str) -> Any:
    """Returns radians within half a turn of 0: `(*positions.shape, pairs)`.

    They are of the dtype given, `"float32"` or `"float64"`, and NaN for
    positions that are not valid.
    """
    places = [ops.expand_dims(digit, -1) for digit in digits.digits]
    turn = carry = None
    # From the lowest chunk up, the excess of 20 bits is carried.
    for chunk in reversed(table):
        total = functools.reduce(operator.add, map(ops.multiply, places, chunk))
        if carry is not None:
            total = total + carry
        if chunk is table[0]:
            # The excess is whole turns; the angle nearest to 0 is best.
            part = ops.mod(total + _ONE // 2, _ONE) - _ONE // 2
        else:
            part, carry = ops.mod(total, _ONE), ops.floor_divide(total, _ONE)
        part = ops.cast(part, dtype)
        turn = (part if turn is None else part + turn) / 1024 / 1024
    # 2 pi, or NaN, as bits: so that no converter rounds it to float16.
    circle = np.array([[2 * math.pi], [math.nan]], dtype)
    circle = ops.convert_to_tensor(kept_table(circle))
    return turn * rows_of(circle, ops.where(digits.valid, 0, 1))


def learnable(angle: Any, *, times: Any, frequencies: Any) -> Any:
    """Returns the same angles, with gradients for the frequencies.

    Integers have no gradients. The term added here is 0, with the gradient of
    `2 pi * times * frequencies`.
    """
    slope = 2 * math.pi * ops.expand_dims(times, -1) * frequencies
    return angle + (slope - ops.stop_gradient(slope))


def _chunks(dtype: str) -> int:
    return 3 if dtype == "float64" else 2


def _split(positions: Any, exact: str) -> tuple[Any, Any, Any, Any]:
    """Splits positions: (p // 2**24, p % 2**24, fraction or None, validity)."""
    if not hasattr(positions, "dtype"):
        positions = np.asarray(positions)  # a list of floats stays float64
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if "float" in dtype:
        if dtype != "float64":
            positions = ops.cast(positions, exact)
        # In steps: float16 constants hold neither 2**48 nor 2**24.
        size = ops.abs(positions / 4096 / 4096 / 4096)
        valid = size <= 4096  # False for NaN
        positions = ops.where(valid, positions, ops.zeros_like(positions))
        whole = ops.floor(positions)
        high = ops.floor(whole / 4096 / 4096)
        low = whole - high * 4096 * 4096
        fraction = positions - whole
        return ops.cast(high, "int32"), ops.cast(low, "int32"), fraction, valid
    if dtype in ("int64", "uint64"):
        positions = ops.cast(positions, "int64")
        valid = ops.logical_and(positions >= -LIMIT, positions <= LIMIT)
        positions = ops.clip(positions, -LIMIT, LIMIT)
        low = ops.mod(positions, 2**24)
        # LiteRT cannot divide int64. 24 bits are left, which float32 holds.
        high = ops.cast(positions - low, "float32") / 4096 / 4096
        return ops.cast(high, "int32"), ops.cast(low, "int32"), None, valid
    if dtype != "uint32":
        positions = ops.cast(positions, "int32")
    high = ops.cast(ops.floor_divide(positions, 2**24), "int32")
    low = ops.cast(ops.mod(positions, 2**24), "int32")
    return high, low, None, ops.ones_like(low, dtype="bool")


@functools.lru_cache(maxsize=16)
def _table(
    frequencies: tuple[Fraction, ...], powers: tuple[int, ...], chunks: int
) -> np.ndarray:
    """Returns int32 `(chunks, powers, pairs)`: turns in base 2**20."""
    table = np.empty((chunks, len(powers), len(frequencies)), "int32")
    for j, frequency in enumerate(frequencies):
        above, below = frequency.as_integer_ratio()
        for i, power in enumerate(powers):
            # Integers: Fractions would be reduced in each step.
            turns = above << 8 * max(power, 0)
            whole = below << 8 * max(-power, 0)
            rest = ((turns % whole << _BITS * chunks) + whole // 2) // whole
            for chunk in reversed(range(chunks)):
                digit = (rest + _ONE // 2) % _ONE - _ONE // 2
                table[chunk, i, j] = digit
                rest = (rest - digit) >> _BITS
    table.flags.writeable = False
    return table
