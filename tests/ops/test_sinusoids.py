"""The exact sinusoid, held to the oracle by its stated error bounds."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_posenc.ops.sinusoids import LIMIT, Phases, Sinusoids
from tests import reference

WIDTHS = (1, 2, 3, 4, 63, 64, 512, 4096)
LAYOUTS = ("interleaved", "halves")
WAVELENGTHS = (1, 2.5, 10000, 1e6)
CASES = [
    (dim, max_wavelength)
    for dim in WIDTHS
    for max_wavelength in WAVELENGTHS
    if dim < 4096 or max_wavelength == 10000  # where the oracle takes seconds
]
LENGTHS = (1, 2, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097)
# Before, at and behind each digit's end, both signs, and some between.
MILESTONES = sorted(
    sign * (power + step)
    for power in (0, 64, 128, 64**2, 64**3, 5000, 12345678, LIMIT)
    for step in (-63, -1, 0, 1, 2, 65)
    for sign in (-1, 1)
    if power + step <= LIMIT
)


@pytest.mark.parametrize(("dim", "max_wavelength"), CASES)
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", WIDTHS)
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


@pytest.mark.parametrize("dim", [1, 2, 3, 64, 512])
def test_float64_arithmetic(dim, near, encoding_bound):
    random = np.random.default_rng(0)
    reals = random.uniform(-1, 1, 100) * 2.0 ** random.uniform(-10, 24, 100)
    for positions in (np.array(MILESTONES), reals):
        got = Sinusoids(
            dim, max_wavelength=10000, layout="interleaved", dtype="float64"
        ).at(positions)
        want = reference.positional_encoding(positions, dim)
        assert keras.backend.standardize_dtype(got.dtype) == "float64"
        near(got, want, encoding_bound(positions, want, "float64"))


@pytest.mark.parametrize("dim", [2, 63, 512])
def test_single_digits_are_correctly_rounded(dim, near, half_ulp):
    # A zero digit composes exactly, so nothing is left but the table's own
    # rounding, of a value in float64 whose angle is off by 3 units.
    digits = np.arange(1, 64)
    positions = np.concatenate([digits * 64**power for power in range(4)])
    got = Sinusoids(dim, max_wavelength=10000, layout="interleaved").at(
        positions
    )
    want = reference.positional_encoding(positions, dim)
    angle = 3 * positions[:, np.newaxis] * 2.0**-53
    near(got, want, half_ulp(want, "float32") + angle)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16"]
)
def test_dtypes_of_positions(dtype, near, encoding_bound):
    positions = np.array([0, 1, 2, 63, 64, 65, 100, 127])
    got = Sinusoids(6, max_wavelength=10000, layout="halves").at(
        ops.cast(positions, dtype)
    )
    want = reference.positional_encoding(positions, 6, layout="halves")
    near(got, want, encoding_bound(positions, want))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 3)])
def test_positions_of_any_shape(shape, near, encoding_bound):
    count = np.prod(shape, dtype=int)
    positions = np.reshape(np.arange(1000, 1000 + count), shape)
    for dim in (4, 5):
        got = Sinusoids(dim, max_wavelength=10000, layout="interleaved").at(
            positions
        )
        want = reference.positional_encoding(positions, dim)
        near(got, want, encoding_bound(positions, want))


@pytest.mark.parametrize(
    "positions",
    [
        np.array([LIMIT + 1, -LIMIT - 1, 2**31 - 1, -(2**31)], "int32"),
        np.array([LIMIT + 1, -LIMIT - 1, 2**31, -(2**31) - 1], "int64"),
        np.array([2**32, 2**32 + 5, -(2**32), 2**63 - 1, -(2**63)], "int64"),
        np.array([LIMIT + 1, 2**31, 2**32 - 5], "uint32"),
        pytest.param(
            np.array([2**32, 2**32 + 5, 2**64 - 5], "uint64"),
            marks=pytest.mark.tensorflow,
        ),
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


def test_nan_stays_in_its_row(near, encoding_bound):
    positions = np.array([5.0, np.nan, 7.5])
    got = ops.convert_to_numpy(
        Sinusoids(4, max_wavelength=10000, layout="halves").at(positions)
    )
    want = reference.positional_encoding(positions[::2], 4, layout="halves")
    assert np.all(np.isnan(got[1]))
    near(got[::2], want, encoding_bound(positions[::2], want))


@settings(max_examples=40)
@given(data=st.data())
def test_phases_of_any_frequencies(data, near, encoding_bound):
    rates = data.draw(st.lists(st.floats(-1, 1), min_size=1, max_size=5))
    whole = st.integers(-LIMIT, LIMIT)
    reals = st.floats(-LIMIT, LIMIT, width=32)
    for kind in (whole, reals):
        positions = np.array(data.draw(st.lists(kind, min_size=1, max_size=3)))
        want = reference.phases(positions, rates)
        bound = encoding_bound(positions, want[0])
        for got, exact in zip(Phases(rates).at(positions), want, strict=True):
            near(got, exact, bound)


def test_phases_keep_frequencies_apart(near, encoding_bound):
    # One cached table for each list of frequencies, not for each length.
    positions = np.arange(100)
    for rates in ([0.5, 0.25], [0.5, 0.125], [0.25, 0.5]):
        want = reference.phases(positions, rates)
        sine, cosine = Phases(rates).at(positions)
        near(sine, want[0], encoding_bound(positions, want[0]))
        near(cosine, want[1], encoding_bound(positions, want[1]))


STARTS = (
    *(0, 1, 62, 63, 64, 65, 1000, 4095, 64**3 - 70, 12345678),
    *(-1, -63, -64, -65, -100, -5000, -LIMIT),
)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dim", [3, 64])
def test_ranges(dim, length, near, encoding_bound):
    starts = (*STARTS, LIMIT - length + 1)
    for start, layout in zip(starts, LAYOUTS * 9, strict=True):
        got = Sinusoids(dim, max_wavelength=10000, layout=layout).range(
            start, length
        )
        positions = start + np.arange(length)
        want = reference.positional_encoding(positions, dim, layout=layout)
        near(got, want, encoding_bound(positions, want))


@pytest.mark.parametrize(("dim", "max_wavelength"), CASES)
def test_ranges_of_any_width(dim, max_wavelength, near, encoding_bound):
    for start, layout in ((0, "interleaved"), (5000, "halves")):
        sinusoids = Sinusoids(dim, max_wavelength=max_wavelength, layout=layout)
        positions = start + np.arange(130)
        want = reference.positional_encoding(
            positions, dim, max_wavelength, layout
        )
        near(sinusoids.range(start, 130), want, encoding_bound(positions, want))


def test_range_in_float64(near, encoding_bound):
    for start, length in ((0, 200), (-5000, 129), (LIMIT - 299, 300)):
        sinusoids = Sinusoids(
            63, max_wavelength=10000, layout="interleaved", dtype="float64"
        )
        positions = start + np.arange(length)
        want = reference.positional_encoding(positions, 63)
        bound = encoding_bound(positions, want, "float64")
        near(sinusoids.range(start, length), want, bound)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("length", [1, 2, 64, 129])
def test_batch_of_starts(length, dtype, near, encoding_bound):
    starts = np.array(STARTS, dtype)
    for dim, layout in ((5, "interleaved"), (4, "halves")):
        got = Sinusoids(dim, max_wavelength=10000, layout=layout).range(
            starts, length
        )
        positions = starts[:, np.newaxis] + np.arange(length)
        want = reference.positional_encoding(positions, dim, layout=layout)
        near(got, want, encoding_bound(positions, want))


def test_range_of_nothing():
    sinusoids = Sinusoids(4, max_wavelength=10000, layout="interleaved")
    assert tuple(sinusoids.range(7, 0).shape) == (0, 4)
    assert tuple(sinusoids.range(np.array([7, 8]), 0).shape) == (2, 0, 4)


@settings(max_examples=40)
@given(data=st.data())
def test_range_and_at_agree_with_the_oracle(data, near, encoding_bound):
    length = data.draw(st.integers(1, 200), "length")
    start = data.draw(
        st.one_of(
            st.integers(-300, 300),
            st.integers(-LIMIT, LIMIT - length + 1),
        ),
        "start",
    )
    dim = data.draw(st.integers(1, 9), "dim")
    max_wavelength = data.draw(st.floats(1, 1e7), "max_wavelength")
    layout = data.draw(st.sampled_from(LAYOUTS), "layout")
    sinusoids = Sinusoids(dim, max_wavelength=max_wavelength, layout=layout)
    positions = start + np.arange(length)
    want = reference.positional_encoding(positions, dim, max_wavelength, layout)
    bound = encoding_bound(positions, want)
    near(sinusoids.range(start, length), want, bound)
    near(sinusoids.at(positions), want, bound)


BEYOND = [
    *(LIMIT + offset for offset in (*range(-66, 2), -130)),
    *(-LIMIT + offset for offset in (*range(-66, 1), -130)),
    2**31 - 1,
    -(2**31),
    2**40,
    -(2**40),
    np.int64(2**32),
    np.int64(2**32 + 5),
    np.int64(-(2**63)),
    np.uint32(2**32 - 5),
    np.uint64(2**64 - 5),
]


@pytest.mark.parametrize(
    ("form", "step"),
    [(lambda x: x, 1), (np.array, 5), (lambda x: np.array([x]), 5)],
)
def test_a_range_is_nan_beyond_the_limit_alone(
    form, step, near, encoding_bound
):
    """... as are positions that are given, at either end."""
    sinusoids = Sinusoids(3, max_wavelength=10000, layout="interleaved")
    for start in BEYOND[::step]:
        got = ops.convert_to_numpy(sinusoids.range(form(start), 300))
        got = np.reshape(got, (300, 3))
        positions = np.array([int(start) + i for i in range(300)], object)
        inside = np.array(abs(positions) <= LIMIT, bool)
        assert np.array_equal(np.isnan(got).all(-1), ~inside)
        positions = positions[inside].astype("int64")
        want = reference.positional_encoding(positions, 3)
        near(got[inside], want, encoding_bound(positions, want))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_of_unknown_shapes(jit_compile, near, encoding_bound):
    import tensorflow as tf

    sinusoids = Sinusoids(5, max_wavelength=10000, layout="interleaved")

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec((), "int32"),
            tf.TensorSpec((None,), "int32"),
            tf.TensorSpec((None, None), "float32"),
        ],
    )
    def graph(start, starts, positions):
        length = tf.shape(positions)[1]
        return (
            sinusoids.range(start, length),
            sinusoids.range(starts, length),
            sinusoids.at(positions),
        )

    for batch, length in ((1, 1), (2, 64), (3, 130)):
        starts = 5000 * np.arange(batch) - 100
        reals = np.random.default_rng(0).uniform(-5e3, 5e3, (batch, length))
        reals = reals.astype("float32")
        rows = np.arange(length)
        cases = (777 + rows, starts[:, np.newaxis] + rows, reals)
        got = graph(777, starts.astype("int32"), reals)
        for encoding, positions in zip(got, cases, strict=True):
            want = reference.positional_encoding(positions, 5)
            near(encoding, want, encoding_bound(positions, want))
