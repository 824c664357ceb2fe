"""The tutorial's functions: figures as printed, and one rounding."""

import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference

LAYOUTS = ("interleaved", "halves")
DTYPES = ("float16", "bfloat16", "float32", "float64")


def rounding_bound(want, dtype, half_ulp):
    """One rounding to `dtype` of what float64 gives for each position.

    Its angle is off by 3 units of the position (frequency and product), its
    sine or cosine by one more.
    """
    positions = np.arange(want.shape[1])[:, np.newaxis]
    return half_ulp(want, dtype) + (3 * positions + 2) * 2.0**-53


# What is printed is good to half a unit of its last digit.


def test_frequencies_of_base_100(near):
    near(
        kp.get_angles(1, [0, 1, 2, 3], 4, max_wavelength=100),
        [1, 1, 0.1, 0.1],
        0.5e-2,
    )


def test_the_first_layer_written_this_way(near):
    # position 50, width 512: (1, position, d_model), float32, interleaved
    got = kp.positional_encoding(50, 512)
    assert tuple(got.shape) == (1, 50, 512)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    angles = np.arange(50)[:, np.newaxis] * 10000 ** (-np.arange(256) / 256)
    # Angles up to 50 in float64 cost far less than one rounding to float32.
    near(got[0, :, 0::2], np.sin(angles), 2.0**-25 + 1e-13)
    near(got[0, :, 1::2], np.cos(angles), 2.0**-25 + 1e-13)


# Against the oracle.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("d_model", "max_wavelength", "dtype"),
    [
        (1, 1, "float16"),
        (2, 2.5, "bfloat16"),
        (3, 100, "float32"),
        (4, 10000, "float64"),
        (63, 1e6, "float32"),
        (64, 10000, "bfloat16"),
    ],
)
def test_rounded_once(d_model, max_wavelength, layout, dtype, near, half_ulp):
    got = kp.positional_encoding(
        130,
        d_model,
        max_wavelength=max_wavelength,
        layout=layout,
        dtype=dtype,
    )
    assert keras.backend.standardize_dtype(got.dtype) == dtype
    want = reference.positional_encoding(130, d_model, max_wavelength, layout)
    want = want[np.newaxis]
    near(got, want, rounding_bound(want, dtype, half_ulp))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounded_once_where_two_roundings_would_show(dtype, near, half_ulp):
    # Of 2.5 million entries, rounding to float32 first takes dozens to the
    # middle between two bfloat16 or float16 numbers, and half of those to the
    # wrong one.
    got = kp.positional_encoding(5000, 512, dtype=dtype)
    want = reference.positional_encoding(5000, 512)[np.newaxis]
    near(got, want, rounding_bound(want, dtype, half_ulp))


def test_dtype_follows_floatx():
    floatx = keras.config.floatx()
    try:
        keras.config.set_floatx("float16")
        got = kp.positional_encoding(2, 4)
    finally:
        keras.config.set_floatx(floatx)
    assert keras.backend.standardize_dtype(got.dtype) == "float16"


def test_integers_of_other_types():
    got = kp.positional_encoding(np.int64(3), np.uint8(4))
    assert tuple(got.shape) == (1, 3, 4)


def pow_bound(angles, exponents, max_wavelength):
    """How far float32 angles may be off.

    In units of 2**-24: the exponent's rounding passes the power as exponent x
    log(base), the base's own as exponent, the power itself is good to two
    ulp (4 units), its inverse and the product add one each.
    """
    units = exponents * (math.log(max_wavelength) + 1) + 4 + 2
    return np.abs(angles) * units * 2.0**-24 * (1 + 1e-5)


@pytest.mark.parametrize("max_wavelength", [1, 2.5, 100, 10000, 1e6])
@pytest.mark.parametrize("d_model", [1, 2, 3, 64, 512])
def test_angles(d_model, max_wavelength, near):
    position = np.array([0, 1, 2, 50, 4096, 123456, -7])[:, np.newaxis]
    i = np.arange(d_model)[np.newaxis]
    got = kp.get_angles(position, i, d_model, max_wavelength=max_wavelength)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    want = reference.get_angles(position, i, d_model, max_wavelength)
    near(got, want, pow_bound(want, 2 * (i // 2) / d_model, max_wavelength))


def test_columns_share_frequencies_in_pairs():
    angles = ops.convert_to_numpy(kp.get_angles([[3.0]], np.arange(8), 8))
    assert np.array_equal(angles[:, 0::2], angles[:, 1::2])
    assert np.all(np.diff(angles[0, 0::2]) < 0)


@pytest.mark.tensorflow
def test_angles_as_the_tutorial_writes_them():
    import tensorflow as tf

    def get_angles(position, i, d_model):
        angles = 1 / tf.pow(10000, (2 * (i // 2)) / tf.cast(d_model, "float32"))
        return position * angles

    position = tf.range(50, dtype="float32")[:, tf.newaxis]
    i = tf.range(512, dtype="float32")[tf.newaxis, :]
    theirs = get_angles(position, i, tf.cast(512, "int32"))
    ours = kp.get_angles(position, i, tf.cast(512, "int32"))
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"position": 0},
            r"`position` must be a positive integer\. Received: position=0$",
        ),
        ({"position": -1}, r"`position` must be .* Received: position=-1$"),
        ({"position": 5.0}, r"`position` must be .* Received: position=5\.0$"),
        ({"position": True}, r"`position` must .* Received: position=True$"),
        (
            {"d_model": 0},
            r"`d_model` must be a positive integer\. Received: d_model=0$",
        ),
        ({"d_model": "4"}, r"`d_model` must be .* Received: d_model='4'$"),
        (
            {"max_wavelength": 0.5},
            r"`max_wavelength` must be a finite number of at least 1\. "
            r"Received: max_wavelength=0\.5$",
        ),
        (
            {"max_wavelength": math.inf},
            r"`max_wavelength` must .* Received: max_wavelength=inf$",
        ),
        (
            {"layout": "halfs"},
            r"`layout` must be 'interleaved' or 'halves'\. "
            r"Received: layout='halfs'$",
        ),
        (
            {"dtype": "int32"},
            r"`dtype` must be a float dtype\. Received: dtype='int32'$",
        ),
        ({"dtype": "bool"}, r"`dtype` must be .* Received: dtype='bool'$"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        kp.positional_encoding(**{"position": 5, "d_model": 4, **arguments})
