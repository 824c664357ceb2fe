"""The tutorial's functions: figures as printed, and one rounding."""

import math

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests import reference
from tests.refusals import check, names, table


def rounding_bound(want, dtype, half_ulp):
    """One rounding to `dtype` of what float64 gives for each position.

    Its angle is off by 3 units of the position (frequency and product), its
    sine or cosine by one more.
    """
    positions = np.arange(want.shape[1])[:, np.newaxis]
    return half_ulp(want, dtype) + (3 * positions + 2) * 2.0**-53


@pytest.mark.parametrize(
    ("d_model", "max_wavelength", "layout", "dtype"),
    [
        (1, 1, "halves", "float16"),
        (2, 2.5, "interleaved", "bfloat16"),
        (3, 100, "halves", "float32"),
        (np.uint8(4), 10000, "interleaved", "float64"),
        (63, 1e6, "interleaved", "float32"),
    ],
)
def test_rounded_once(d_model, max_wavelength, layout, dtype, near, half_ulp):
    got = kp.positional_encoding(
        np.int64(130),
        d_model,
        max_wavelength=max_wavelength,
        layout=layout,
        dtype=dtype,
    )
    assert keras.backend.standardize_dtype(got.dtype) == dtype
    want = reference.positional_encoding(
        130, int(d_model), max_wavelength, layout
    )
    want = want[np.newaxis]
    near(got, want, rounding_bound(want, dtype, half_ulp))


def test_rounded_once_where_two_roundings_would_show(near, half_ulp):
    # Of 2.5 million entries, rounding to float32 first takes dozens to the
    # middle between two bfloat16 or float16 numbers, and half of those to the
    # wrong one.
    want = reference.positional_encoding(5000, 512)[np.newaxis]
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        got = kp.positional_encoding(5000, 512, dtype=dtype)
        near(got, want, rounding_bound(want, dtype, half_ulp))


def test_dtype_follows_floatx():
    floatx = keras.config.floatx()
    try:
        keras.config.set_floatx("float16")
        got = kp.positional_encoding(2, 4)
    finally:
        keras.config.set_floatx(floatx)
    assert keras.backend.standardize_dtype(got.dtype) == "float16"


def pow_bound(angles, exponents, max_wavelength):
    """How far float32 angles may be off.

    In units of 2**-24: the exponent's rounding passes the power as exponent x
    log(base), the base's own as exponent, the power itself is good to two
    ulp (4 units), its inverse and the product add one each.
    """
    units = exponents * (math.log(max_wavelength) + 1) + 4 + 2
    return np.abs(angles) * units * 2.0**-24 * (1 + 1e-5)


@pytest.mark.parametrize(
    ("d_model", "max_wavelength"),
    [(1, 100), (2, 1), (3, 2.5), (64, 1e6), (512, 10000)],
)
def test_angles(d_model, max_wavelength, near):
    position = np.array([0, 1, 2, 50, 4096, 123456, -7])[:, np.newaxis]
    i = np.arange(d_model)[np.newaxis]
    got = kp.get_angles(position, i, d_model, max_wavelength=max_wavelength)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    want = reference.get_angles(position, i, d_model, max_wavelength)
    near(got, want, pow_bound(want, 2 * (i // 2) / d_model, max_wavelength))


WRONG = """
positional_encoding(0, 4)
    `position` must be a positive integer. Received: position=0
positional_encoding(True, 4)
    `position` must be a positive integer. Received: position=True
positional_encoding(5, "4")
    `d_model` must be a positive integer. Received: d_model='4'
positional_encoding(5, 4, max_wavelength=0.5)
    `max_wavelength` must be a finite number of at least 1. Received: max
positional_encoding(5, 4, layout="halfs")
    `layout` must be 'interleaved' or 'halves'. Received: layout='halfs'
positional_encoding(5, 4, dtype="int32")
    `dtype` must be a float dtype. Received: dtype='int32'
"""


@pytest.mark.parametrize(("call", "said"), table(WRONG))
def test_bad_arguments(call, said):
    check(call, said, names(kp))
