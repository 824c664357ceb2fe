"""Checks of tensors and shapes: what passes, and what is said if not."""

import keras
import numpy as np
import pytest

from keras_posenc.ops import arguments as check

SIZES = {"batch": 2, "seq": None, "key": 5}


@pytest.mark.parametrize(
    "shape", [(2, 7), (1, 7), (None, 7), (2, None), (None, None), (5,), (None,)]
)
def test_good_shapes(shape):
    tensor = keras.KerasTensor(shape)
    expected = ("batch", "seq"), ("key",)
    check.check_shape("mask", tensor, *expected, sizes=SIZES)
    check.check_shape("mask", None, *expected, sizes=SIZES)


@pytest.mark.parametrize("shape", [(3, 7), (2, 7, 1), (), (4,), (1,)])
def test_bad_shapes(shape):
    tensor = keras.KerasTensor(shape)
    expected = ("batch", "seq"), ("key",)
    with pytest.raises(ValueError, match="must have shape") as error:
        check.check_shape("mask", tensor, *expected, sizes=SIZES)
    assert str(error.value) == (
        "`mask` must have shape (batch, seq) or (key,), with batch=2, "
        f"key=5. Received: mask of shape {shape}"
    )


@pytest.mark.parametrize("value", [3, [1, 2], np.uint8(3), np.arange(3)])
def test_integers(value):
    check.check_integers("ids", value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1.5, "float32"), ([True], "bool"), (np.float16(1), "float16")],
)
def test_no_integers(value, dtype):
    with pytest.raises(ValueError, match="must be") as error:
        check.check_integers("ids", value)
    assert str(error.value) == (
        f"`ids` must be of an integer dtype. Received: ids of dtype {dtype}"
    )
