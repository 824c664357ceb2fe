"""The oracle itself, held to published figures and to mpmath.

Blocks, rotary frequencies and the biases of the papers need no test here:
layers are held both to the oracle and to other libraries' numbers.
"""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference as ref

UNIT = 2.0**-53  # relative rounding error of one float64 operation
# An entry is sin a cos b + cos a sin b. Sines and cosines good to 4 ulp, each
# times its partner, the partners adding up to at most sqrt(8): 12 units; the
# rounding of the fine angle, below 1.5: 5; of the products and the sum: 2.
ENTRY = 19 * UNIT
FAR = 2**24
PRINTED = [
    [0, 0, 0, 1, 1, 1],
    [0.841, 0.046, 0.002, 0.540, 0.999, 1],
    [0.909, 0.093, 0.004, -0.416, 0.996, 1],
    [0.141, 0.139, 0.006, -0.990, 0.990, 1],
    [-0.757, 0.185, 0.009, -0.654, 0.983, 1],
]


def near(actual, expected, tolerance):
    """Equal shapes, and every entry within an absolute tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def test_printed_figures():
    """To half a unit of the last printed digit."""
    near(ref.positional_encoding(5, 6, layout="halves"), PRINTED, 0.5e-3)
    angles = ref.get_angles(1, np.arange(4), 4, 100)
    near(angles, [1.0, 1.0, 0.1, 0.1], 0.5e-2)


@pytest.mark.parametrize(
    ("d_model", "base"), [(1, 100.0), (3, 500000.0), (63, 1e4), (512, 1e4)]
)
def test_encoding_against_mpmath(d_model, base):
    """Every entry within its bound of the exact one, up to 2**24."""
    whole = (0, 1, 63, 64, 4095, 4096, 2**18, 12345678, FAR - 1, FAR)
    positions = np.array([*whole, -FAR, -7.25, 0.5, 12345.678, FAR - 0.3])
    expected = np.empty((len(positions), d_model))
    with mpmath.workdps(40):
        for column in range(d_model):
            pair = mpmath.mpf(2 * (column // 2)) / d_model
            wave = mpmath.cos if column % 2 else mpmath.sin
            for row, position in enumerate(positions):
                angle = mpmath.mpf(position) / mpmath.mpf(base) ** pair
                expected[row, column] = wave(angle)
    got = ref.positional_encoding(positions, d_model, base)
    near(got, expected, ENTRY + UNIT)  # UNIT: the rounding of `expected`


@given(
    position=st.one_of(st.integers(-FAR, FAR), st.floats(-FAR, FAR, width=32)),
    rate=st.floats(-1, 1),
)
def test_phases_against_mpmath(position, rate):
    """To the bound of an entry of the encoding."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(position) * mpmath.mpf(rate)
        expected = [float(mpmath.sin(angle)), float(mpmath.cos(angle))]
    sines, cosines = ref.phases(position, [rate])
    near(np.concatenate([sines, cosines]), expected, 2 * ENTRY)
