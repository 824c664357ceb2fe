"""Vectors as integers and bits, and the near-ties of their verification."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

LAYERS = [kp.Int8Quantization, kp.BinaryQuantization]
RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(9, 13)).astype("float32")


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x))


def test_int8_is_the_nearest_integer():
    found = numpy(kp.Int8Quantization()(VECTORS))
    sizes = np.abs(VECTORS).max(axis=-1, keepdims=True).astype("float64")
    exact = 127 * VECTORS / sizes
    assert found.dtype == np.int8
    assert np.abs(found - exact).max() <= 0.5 + 127 * 2**-22
    assert (np.abs(found.astype("int32")).max(axis=-1) == 127).all()


@pytest.mark.parametrize("dim", [1, 8, 13, 16])
def test_bits_are_those_of_numpy(dim):
    x = VECTORS[:, :dim] if dim <= 13 else np.pad(VECTORS, ((0, 0), (0, 3)))
    layer = kp.BinaryQuantization()
    found = numpy(layer(x))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.packbits(x > 0, axis=-1))
    assert layer.compute_output_shape((None, dim)) == (None, found.shape[1])


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_no_number(layer):
    x = np.array([[np.nan, 1, -1], [-np.inf, 1, 2], [0, 0, 0]], "float32")
    if layer is kp.Int8Quantization:
        expected = [[0, 127, -127], [0, 64, 127], [0, 0, 0]]
    else:
        expected = np.packbits(x > 0, axis=-1)
    np.testing.assert_array_equal(numpy(layer()(x)), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
@pytest.mark.parametrize("layer", LAYERS)
def test_low_precision(layer, dtype):
    """Inputs are rounded, and nothing after them."""
    low = keras.dtype_policies.get(dtype).compute_dtype
    rounded = numpy(ops.cast(ops.cast(VECTORS, low), "float32"))
    found = numpy(layer(dtype=dtype)(VECTORS))
    np.testing.assert_array_equal(found, numpy(layer()(rounded)))


@pytest.mark.parametrize("layer", LAYERS)
def test_shapes(layer):
    width = numpy(layer()(VECTORS)).shape[1]
    assert layer()(VECTORS[:0]).shape == (0, width)
    symbolic = layer()(keras.Input((13,)))
    assert symbolic.shape == (None, width)
    assert symbolic.dtype == layer.rounded_dtype
    again = layer.from_config(layer(name="a").get_config())
    np.testing.assert_array_equal(numpy(again(VECTORS)), layer()(VECTORS))
    for wrong in (np.ones(3), np.ones((2, 3, 4)), np.ones((2, 3), "int32")):
        with pytest.raises(ValueError, match="expects inputs of"):
            layer()(wrong)
