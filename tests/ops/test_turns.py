"""Angles of large positions, in every dtype, against rational numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_posenc.ops import turns
from tests import reference

# As the module derives it: 2**-25 of a turn, 2**-24 of half a turn for the
# product, 2**-25 of it for 2 pi, and 9 digits of 2**-41 turns.
BOUND = 2 * math.pi * (2.0**-25 + 2.0**-25 + 2.0**-26 + 9 * 256 * 2.0**-41)


def apart(actual, expected):
    """The distance of two angles on the circle."""
    difference = np.asarray(actual, "float64") - expected
    return np.abs(difference - 2 * np.pi * np.round(difference / (2 * np.pi)))


@given(
    times=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    frequencies=st.lists(
        st.floats(-(2.0**20), 2.0**20, width=32), min_size=1, max_size=4
    ),
)
def test_fixed_and_learned_angles(times, frequencies):
    positions = np.array(times, "int32")
    digits = turns.time_digits(positions)
    want = reference.time_angles(positions, frequencies)
    exact = [Fraction(frequency) for frequency in frequencies]
    for table in (
        turns.fixed_turns(exact, digits=digits, dtype="float32"),
        turns.learned_turns(
            np.array(frequencies, "float32"), digits=digits, dtype="float32"
        ),
    ):
        got = ops.convert_to_numpy(turns.angles(digits, table, dtype="float32"))
        assert np.all(apart(got, want) <= BOUND)
        assert np.all(np.abs(got) <= math.pi * (1 + 2.0**-20))


@given(
    position=st.floats(-(2.0**48), 2.0**48, width=32),
    fraction=st.floats(-4096, 4096, width=32),
)
def test_digits_are_the_position(position, fraction):
    digits = turns.time_digits(
        np.array([position], "float32"),
        fractions=np.array([fraction], "float32"),
    )
    assert bool(digits.valid[0])
    total = Fraction(0)
    for place, digit in enumerate(digits.digits):
        value = int(digit[0])
        assert abs(value) <= 512  # or sums of products would not fit int32
        total += value * Fraction(256) ** (digits.lowest + place)
    # Each fraction is rounded to 2**-24 or so, and the digits end there.
    error = abs(total - Fraction(position) - Fraction(fraction))
    assert error <= 3 * Fraction(1, 2**24)


@given(position=st.integers(-(2**31), 2**31 - 1), fraction=st.floats(0, 1))
def test_fractions_of_integers_are_read_to_the_nearest(position, fraction):
    digits = turns.time_digits([position], fractions=[fraction])
    total = sum(
        int(digit[0]) * Fraction(256) ** (digits.lowest + place)
        for place, digit in enumerate(digits.digits)
    )
    error = abs(total - position - Fraction(fraction))
    assert error <= Fraction(1, 2**25)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
def test_integers_are_their_digits(dtype):
    info = np.iinfo(dtype)
    positions = np.array([info.min, info.max, 0, 1, 255 % info.max], dtype)
    digits = turns.time_digits(positions)
    total = sum(
        ops.convert_to_numpy(digit).astype("int64") * 256**place
        for place, digit in enumerate(digits.digits)
    )
    assert np.array_equal(total, positions.astype("int64"))
