"""One operation where the backend has it, and the same answers as in two."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.ops.attention import (
    attend,
    attention_weights,
    weighted_values,
)

if keras.config.backend() == "tensorflow":
    pytest.skip("TensorFlow has no fused attention", allow_module_level=True)

SHAPE = 2, 3, 5, 4  # batch, heads, seq, dim
SCORES = (*SHAPE[:2], SHAPE[2], SHAPE[2])


def numbers(shape, seed, dtype):
    values = np.random.default_rng(seed).normal(size=shape)
    return ops.cast(ops.convert_to_tensor(values.astype("float32")), dtype)


def masks():
    rng = np.random.default_rng(3)
    keys = np.array([[True, True, False, True, False], [False] * 5])
    pairs = rng.random((2, 1, 5, 5)) < 0.5
    pairs[0, 0, 2] = False  # a query that may attend to nothing
    return {
        "none": None,
        "keys": keys[:, np.newaxis, np.newaxis],
        "pairs": pairs,
    }


BIASES = {"none": None, "one": (), "shared": (1, 3, 5, 5), "all": SCORES}
# Of heads that share keys, and where a bias meets a half precision, two
# operations: one case each, which may not be taken for the fused one.
CASES = [
    *((3, "none", dtype) for dtype in ("float32", "bfloat16", "float16")),
    *((3, bias, "float32") for bias in ("one", "shared", "all")),
    (3, "all", "bfloat16"),
    (1, "shared", "float32"),
]


@pytest.mark.parametrize(("kv_heads", "bias", "dtype"), CASES)
@pytest.mark.parametrize("mask", masks())
def test_one_operation_is_two(mask, bias, dtype, kv_heads):
    query = numbers(SHAPE, 0, dtype)
    key, value = (
        numbers((2, kv_heads, *SHAPE[2:]), seed, dtype) for seed in (1, 2)
    )
    mask, bias = masks()[mask], BIASES[bias]
    mask = None if mask is None else ops.convert_to_tensor(mask)
    if bias is not None:
        # Large ones too: a hidden key stays hidden.
        bias = 100 * numbers(bias, 4, "float32")
    got = attend(query, key, value, mask=mask, bias=bias)
    assert keras.backend.standardize_dtype(got.dtype) == dtype
    weights = attention_weights(query, key, mask=mask, bias=bias)
    want = weighted_values(weights, value)
    # Weights and values of up to 3 are rounded, and the sum of five products.
    unit = {"float32": 2**-24, "bfloat16": 2**-8, "float16": 2**-11}[dtype]
    np.testing.assert_allclose(
        *(ops.convert_to_numpy(ops.cast(x, "float32")) for x in (got, want)),
        rtol=0,
        atol=3 * 7 * 2 * unit,
    )
