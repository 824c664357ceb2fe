import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

TOKENS = np.array([[[1.0, -2.0], [3.0, 6.0], [100.0, 100.0]]], "float32")


def pooled(x, dtype=None, **kwargs):
    outputs = kp.MaskedAveragePooling1D(dtype=dtype)(x, **kwargs)
    return ops.convert_to_numpy(ops.cast(outputs, "float32"))


def test_only_tokens_count():
    mask = np.array([[True, True, False]])
    np.testing.assert_array_equal(pooled(TOKENS, mask=mask), [[2.0, 2.0]])


def test_without_a_mask_every_token_counts():
    everything = np.ones((1, 3), bool)
    np.testing.assert_array_equal(
        pooled(TOKENS), pooled(TOKENS, mask=everything)
    )


def test_nothing_but_padding_is_zero():
    nothing = np.zeros((1, 3), bool)
    np.testing.assert_array_equal(pooled(TOKENS, mask=nothing), [[0.0, 0.0]])
    no_tokens = np.zeros((2, 0, 4), "float32")
    np.testing.assert_array_equal(pooled(no_tokens), np.zeros((2, 4)))


def test_padding_may_be_infinite():
    x = TOKENS.copy()
    x[:, 2] = [np.inf, np.nan]
    mask = np.array([[True, True, False]])
    np.testing.assert_array_equal(pooled(x, mask=mask), [[2.0, 2.0]])


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_long_sums_are_not_taken_in_a_low_dtype(dtype):
    # 4 096 ones: a bfloat16 sum stops at 256, and float16 has no 70 000.
    ones = np.ones((1, 4096, 1), "float32")
    assert pooled(ones, dtype) == 1.0
    assert pooled(20 * ones, dtype) == 20.0


def test_drops_the_mask():
    layer = kp.MaskedAveragePooling1D()
    assert layer.compute_mask(TOKENS, np.ones((1, 3), bool)) is None


def test_after_an_embedding():
    embedding = keras.layers.Embedding(9, 2, mask_zero=True)
    model = keras.Sequential([embedding, kp.MaskedAveragePooling1D()])
    outputs = model(np.array([[3, 5, 0, 0], [0, 0, 0, 0]]))
    table = ops.convert_to_numpy(embedding.embeddings)
    expected = np.stack([(table[3] + table[5]) / 2, np.zeros(2)])
    # One sum and one quotient, each rounded.
    np.testing.assert_allclose(
        ops.convert_to_numpy(outputs), expected, rtol=2 * 2**-23, atol=0
    )


@pytest.mark.parametrize(
    ("inputs", "mask", "message"),
    [
        (np.ones((2, 3)), None, r"expects inputs of shape \(batch, seq, dim\)"),
        (np.ones((2, 3, 0)), None, "with dim known and above 0"),
        (np.ones((2, 3, 4), "int32"), None, "inputs of a float dtype"),
        (
            np.ones((2, 3, 4)),
            np.ones((2, 4), bool),
            r"`mask` must have shape \(batch, seq\), with batch=2, seq=3. "
            r"Received: mask of shape \(2, 4\)",
        ),
        (np.ones((2, 3, 4)), np.ones((2, 3, 1), bool), "`mask` must have shap"),
    ],
)
def test_refuses(inputs, mask, message):
    with pytest.raises(ValueError, match=message):
        kp.MaskedAveragePooling1D()(inputs, mask=mask)
    symbolic = keras.KerasTensor(inputs.shape, dtype=str(inputs.dtype))
    if mask is not None:
        mask = keras.KerasTensor(mask.shape, dtype="bool")
    with pytest.raises(ValueError, match=message):
        kp.MaskedAveragePooling1D()(symbolic, mask=mask)
