"""The exact sinusoid, held to the oracle by its stated error bounds."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.ops.sinusoids import LIMIT, Phases, Sinusoids
from tests import reference

WIDTHS = (1, 2, 3, 4, 63, 64, 512, 4096)
LAYOUTS = ("interleaved", "halves")
WAVELENGTHS = (10000, 2.5, 1e6, 1)
LENGTHS = (1, 63, 64, 65, 129, 4097)
# Before, at and behind each digit's end, both signs, and some between.
MILESTONES = sorted(
    sign * (power + step)
    for power in (0, 64, 128, 64**2, 64**3, 5000, 12345678, LIMIT)
    for step in (-63, -1, 0, 1, 2, 65)
    for sign in (-1, 1)
    if power + step <= LIMIT
)


@pytest.mark.parametrize(
    ("dim", "max_wavelength"),
    [*zip(WIDTHS, 2 * WAVELENGTHS[::-1], strict=True)],
)
def test_integers(dim, max_wavelength, near, encoding_bound):
    positions = np.array(MILESTONES)
    for layout in LAYOUTS:
        got = Sinusoids(dim, max_wavelength=max_wavelength, layout=layout).at(
            positions
        )
        want = reference.positional_encoding(
            positions, dim, max_wavelength, layout
        )
        assert keras.backend.standardize_dtype(got.dtype) == "float32"
        near(got, want, encoding_bound(positions, want))


@pytest.mark.parametrize(
    ("dim", "dtype"), [*zip(WIDTHS, 4 * ["float32", "float64"], strict=True)]
)
def test_reals(dim, dtype, near, encoding_bound):
    random = np.random.default_rng(dim)
    scale = 2.0 ** random.uniform(-10, 24, 100)
    positions = np.concatenate(
        [
            random.uniform(-1, 1, 100) * scale,
            [0.5, -0.5, 63.999, 1000.25, -1e-9, 1e-9, LIMIT - 0.5, -LIMIT],
        ]
    ).astype(dtype)
    for layout in LAYOUTS:
        got = Sinusoids(dim, max_wavelength=10000, layout=layout).at(positions)
        want = reference.positional_encoding(positions, dim, layout=layout)
        near(got, want, encoding_bound(positions, want))


@pytest.mark.tensorflow
def test_float64(near, encoding_bound):
    positions = np.array(MILESTONES)
    sinusoids = Sinusoids(
        63, max_wavelength=10000, layout="interleaved", dtype="float64"
    )
    want = reference.positional_encoding(positions, 63)
    bound = encoding_bound(positions, want, "float64")
    near(sinusoids.at(positions), want, bound)
    for row in (0, 20, -20):
        got = sinusoids.range(int(positions[row]), 1)
        near(got, want[row : row + 1 or None], bound[row : row + 1 or None])


@pytest.mark.parametrize(
    "positions",
    [
        np.array([LIMIT + 1, -LIMIT - 1, 2**31 - 1, -(2**31)], "int32"),
        np.array([2**32, 2**32 + 5, -(2**31) - 1, -(2**63)], "int64"),
        np.array([LIMIT + 1, 2**31, 2**32 - 5], "uint32"),
        np.array([LIMIT + 2, -LIMIT - 2, 1e30, np.inf, -np.inf, np.nan], "f4"),
        np.array([LIMIT + 1e-3, -LIMIT - 1e-3, 1e300, np.inf, np.nan], "f8"),
        np.array([np.inf, -np.inf, np.nan], "f2"),
    ],
    ids=lambda positions: f"{positions.dtype}-{positions[-1]}",
)
def test_positions_out_of_range_are_nan(positions):
    for dim in (1, 4, 5):
        got = Sinusoids(dim, max_wavelength=10000, layout="interleaved").at(
            positions
        )
        assert np.all(np.isnan(ops.convert_to_numpy(got)))


def test_phases_keep_frequencies_apart(near, encoding_bound):
    # One cached table for each list of frequencies, not for each length.
    positions = np.arange(100)
    for rates in ([0.5, 0.25], [0.5, 0.125], [0.25, 0.5]):
        want = reference.phases(positions, rates)
        sine, cosine = Phases(rates).at(positions)
        near(sine, want[0], encoding_bound(positions, want[0]))
        near(cosine, want[1], encoding_bound(positions, want[1]))


STARTS = (0, 63, 64, 4095, 64**3 - 70, 12345678, -1, -65, -5000, -LIMIT)


@pytest.mark.parametrize("length", LENGTHS)
def test_ranges(length, near, encoding_bound):
    """One after the other, and a batch of all."""
    starts = np.array([*STARTS, LIMIT - length + 1])
    for dim, layout in ((3, "interleaved"), (64, "halves")):
        sinusoids = Sinusoids(dim, max_wavelength=10000, layout=layout)
        positions = starts[:, np.newaxis] + np.arange(length)
        want = reference.positional_encoding(positions, dim, layout=layout)
        bound = encoding_bound(positions, want)
        near(sinusoids.range(starts, length), want, bound)
        for row, start in enumerate(starts.tolist()):
            near(sinusoids.range(start, length), want[row], bound[row])


@pytest.mark.parametrize(
    ("form", "step"),
    [(lambda x: x, 1), (np.array, 5), (lambda x: np.array([x]), 5)],
)
def test_a_range_is_nan_beyond_the_limit_alone(
    form, step, near, encoding_bound
):
    """... as are positions that are given, at either end."""
    beyond = [
        *(LIMIT + offset for offset in range(-66, 2, 3)),
        *(-LIMIT + offset for offset in range(-66, 1, 3)),
        *(-(2**31), 2**40, np.int64(2**32 + 5), np.int64(-(2**63))),
        *(np.uint32(2**32 - 5), np.uint64(2**64 - 5)),
    ]
    sinusoids = Sinusoids(3, max_wavelength=10000, layout="interleaved")
    for start in beyond[::step]:
        got = ops.convert_to_numpy(sinusoids.range(form(start), 300))
        got = np.reshape(got, (300, 3))
        positions = np.array([int(start) + i for i in range(300)], object)
        inside = np.array(abs(positions) <= LIMIT, bool)
        assert np.array_equal(np.isnan(got).all(-1), ~inside)
        positions = positions[inside].astype("int64")
        want = reference.positional_encoding(positions, 3)
        near(got[inside], want, encoding_bound(positions, want))
