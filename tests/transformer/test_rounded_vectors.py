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


def settled(layer, x, other):
    """What a verification takes, where another runtime gives `other`."""
    with layer.unrounded():
        floats = layer(x)
    return numpy(layer.settled(floats, np.array(other), 1e-5))


def test_only_near_ties_are_chosen():
    """What another runtime gives is taken where both are as near."""
    x = np.array([[127, 0.5, 1.5, 0.6, -63.5004]], "float32")
    layer = kp.Int8Quantization()
    other = np.array([[127, 1, 1, 0, -64]], "int8")
    own = np.array([[127, 0, 2, 1, -64]], "int8")
    np.testing.assert_array_equal(numpy(layer(x)), own)
    # 0.6 is not as near to 0 as to 1.
    found = settled(layer, x, other)
    np.testing.assert_array_equal(found, [[127, 1, 1, 1, -64]])
    assert found.dtype == np.int8
    np.testing.assert_array_equal(numpy(layer(x)), own)

    x = np.array([[1, 0, 1e-6, -1e-6, 1e-3, 0, 0, 0]], "float32") * 7
    layer = kp.BinaryQuantization()
    other = np.packbits([[1, 1, 0, 1, 0, 0, 0, 0]], axis=-1)
    found = np.unpackbits(settled(layer, x, other), axis=-1)
    np.testing.assert_array_equal(found, [[1, 1, 0, 1, 1, 0, 0, 0]])
    zeros = settled(layer, np.zeros((1, 8), "float32"), other)
    np.testing.assert_array_equal(zeros, [[0]])
    # The other four bits are no numbers.
    found = settled(layer, x[:, :4], np.array([[175]], "uint8"))
    np.testing.assert_array_equal(found, [[160]])
