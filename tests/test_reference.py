"""The oracle itself, held to published figures and to mpmath.

Blocks, rotary frequencies and the biases of the papers need no test here:
layers are held both to the oracle and to other libraries' numbers.
"""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference as ref

UNIT = 2.0**-53  # relative rounding error of one float64 operation
# An entry is sin a cos b + cos a sin b. Sines and cosines good to 4 ulp, each
# times its partner, the partners adding up to at most sqrt(8): 12 units; the
# rounding of the fine angle, below 1.5: 5; of the products and the sum: 2.
ENTRY = 19 * UNIT
# Sums of up to a hundred or so terms of size 1 to 10, a few of them chained.
SUMS = 1e-12

FAR = 2**24

property_test = settings(deadline=None, max_examples=50)


def table(text: str) -> np.ndarray:
    """Numbers printed in rows, as an array."""
    return np.array([line.split() for line in text.split("\n") if line], float)


HALVES = table("""
0      0      0      1      1      1
0.841  0.046  0.002  0.540  0.999  1
0.909  0.093  0.004 -0.416  0.996  1
0.141  0.139  0.006 -0.990  0.990  1
-0.757 0.185  0.009 -0.654  0.983  1
""")
BASE_1000 = table("""
0            1            0            1
0.84147098   0.54030231   0.03161751   0.99950004
0.90929743  -0.41614684   0.0632034    0.99800067
0.14112001  -0.9899925    0.09472609   0.99550337
-0.7568025   -0.65364362   0.12615407   0.99201066
-0.95892427   0.28366219   0.1574559    0.98752602
-0.2794155    0.96017029   0.18860029   0.98205394
0.6569866    0.75390225   0.21955609   0.97559988
0.98935825  -0.14550003   0.25029236   0.9681703
0.41211849  -0.91113026   0.28077835   0.95977264
""")
EMBEDDED = table("""
0.28  0.08  0.51 -1.07
-1.27 -0.07  0.77 -0.08
-1.46 -1.10  0.90 -0.00
-0.10 -0.09  0.53 -1.52
0.83 -0.43  0.28 -0.14
0.03 -1.25  1.08  0.62
""")
EMBEDDED_SUM = table("""
0.28  1.08  0.51 -0.07
-0.43  0.47  0.80  0.92
-0.55 -1.51  0.97  1.00
0.04 -1.08  0.63 -0.53
0.08 -1.09  0.40  0.85
-0.93 -0.96  1.23  1.60
""")


def near(actual: object, expected: object, tolerance: float) -> None:
    """Equal shapes, and every entry within an absolute tolerance."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


# Published figures: the tolerance is half a unit of the last printed digit.


def test_printed_tables() -> None:
    """Five rows of halves, ten rows of base 1000."""
    near(ref.positional_encoding(5, 6, layout="halves"), HALVES, 0.5e-3)
    near(ref.positional_encoding(10, 4, 1000), BASE_1000, 0.5e-8)


def test_printed_sum() -> None:
    """A sentence of embeddings plus its encoding, both sides printed."""
    total = EMBEDDED + ref.positional_encoding(6, 4, 1000)
    near(total, EMBEDDED_SUM, 2 * 0.5e-2)


def test_printed_frequencies() -> None:
    """At n = 100 and width 4, columns turn by 1.00 and 0.10 a position."""
    angles = ref.get_angles(1, np.arange(4), 4, 100)
    near(angles, [1.0, 1.0, 0.1, 0.1], 0.5e-2)


# Angles and encodings.


MILESTONES = (0, 1, 63, 64, 4095, 4096, 2**18, 12345678, FAR - 1, FAR)
REAL = (-FAR, -7.25, 0.5, 12345.678, FAR - 0.3)


@pytest.mark.parametrize("base", [100.0, 1000.0, 10000.0, 500000.0])
@pytest.mark.parametrize("d_model", [1, 2, 3, 63, 512])
def test_encoding_against_mpmath(d_model: int, base: float) -> None:
    """Every entry within its bound of the exact one, up to 2**24."""
    positions = np.array(MILESTONES + REAL)
    expected = np.empty((len(positions), d_model))
    with mpmath.workdps(40):
        for column in range(d_model):
            pair = mpmath.mpf(2 * (column // 2)) / d_model
            wave = mpmath.cos if column % 2 else mpmath.sin
            for row, position in enumerate(positions):
                angle = mpmath.mpf(position) / mpmath.mpf(base) ** pair
                expected[row, column] = wave(angle)
    columns = [*range(0, d_model, 2), *range(1, d_model, 2)]
    wanted = {"interleaved": expected, "halves": expected[:, columns]}
    for layout, want in wanted.items():
        got = ref.positional_encoding(positions, d_model, base, layout)
        near(got, want, ENTRY + UNIT)  # UNIT: the rounding of `expected`


# Attention.


def test_activations_against_mpmath() -> None:
    """The three activations, between two dense layers that only scale."""
    x = np.linspace(-5, 5, 21)
    weights = {
        "intermediate_kernel": np.array([[2.0]]),
        "intermediate_bias": np.array([0.5]),
        "output_kernel": np.array([[3.0]]),
        "output_bias": np.array([-1.0]),
    }
    cubic = mpmath.mpf("0.044715")
    # (1 + tanh(z)) / 2 is the logistic function of 2 z.
    root = mpmath.sqrt(8 / mpmath.pi)
    exact: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
        "relu": lambda y: max(y, 0),
        "gelu": lambda y: y * mpmath.ncdf(y),
        "gelu_tanh": lambda y: y / (1 + mpmath.exp(-root * (y + cubic * y**3))),
    }
    for activation, function in exact.items():
        expected = [3 * float(function(mpmath.mpf(2 * y + 0.5))) - 1 for y in x]
        actual = ref.feed_forward(x[:, None], weights, activation)
        near(actual[:, 0], expected, SUMS)
    assert np.array_equal(
        ref.feed_forward(x[:, None], weights),
        ref.feed_forward(x[:, None], weights, "relu"),
    )


# ---- Positions inside attention


@property_test
@given(
    position=st.one_of(st.integers(-FAR, FAR), st.floats(-FAR, FAR, width=32)),
    rate=st.floats(-1, 1),
)
def test_phases_against_mpmath(position: float, rate: float) -> None:
    """To the bound of an entry of the encoding."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(position) * mpmath.mpf(rate)
        expected = [float(mpmath.sin(angle)), float(mpmath.cos(angle))]
    sines, cosines = ref.phases(position, [rate])
    near(np.concatenate([sines, cosines]), expected, 2 * ENTRY)


def test_printed_alibi_slopes() -> None:
    """For 8 heads 1/2 ... 1/256, for 16 the roots between (section 3)."""
    eight = -ref.alibi_bias([1], [0], 8)[:, 0, 0]
    near(eight, 0.5 ** np.arange(1, 9), 0.0)
    sixteen = -ref.alibi_bias([0], [1], 16)[:, 0, 0]
    near(sixteen, 0.5 ** (np.arange(1, 17) / 2), 4 * UNIT)
    twelve = -ref.alibi_bias([0], [1], 12)[:, 0, 0]
    near(twelve, [*eight, *sixteen[0:8:2]], 4 * UNIT)


# ---- Times and grids


@property_test
@given(
    time=st.integers(-(2**48), 2**48),
    fraction=st.floats(0, 1),
    frequency=st.floats(1e-12, 1e3),
)
def test_time_angles_against_mpmath(time, fraction, frequency):
    with mpmath.workdps(60):
        turns = (mpmath.mpf(time) + fraction) * mpmath.mpf(frequency)
        sine, cosine = mpmath.sinpi(2 * turns), mpmath.cospi(2 * turns)
    angle = ref.time_angles([time], [frequency], fraction)[0, 0]
    # The turn and its product with 2 pi are rounded, and 2 pi is: 3 units of
    # at most pi; the sine or cosine itself to 4 ulp.
    bound = (3 * math.pi + 8) * UNIT
    assert abs(math.sin(angle) - float(sine)) <= bound
    assert abs(math.cos(angle) - float(cosine)) <= bound
