"""Scaled dot-product attention, held to the oracle by error bounds."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_posenc.ops.attention import (
    attend,
    attention_weights,
    weighted_values,
)
from tests import reference
from tests.layers import numpy

# Unit roundoff, and the arithmetic of the softmax.
UNITS = {
    "float16": (2.0**-11, 2.0**-24),
    "bfloat16": (2.0**-8, 2.0**-24),
    "float32": (2.0**-24, 2.0**-24),
    "float64": (2.0**-53, 2.0**-53),
}

# Keras computes in float64 there alone.
WIDE = pytest.param(2, "float64", marks=pytest.mark.tensorflow)


def rounded(x, dtype):
    """A tensor, and the numbers that are really in it."""
    x = np.asarray(x, "float64" if dtype == "float64" else "float32")
    x = ops.cast(ops.convert_to_tensor(x), dtype)
    return x, numpy(x)


def oracle(query, key, value, mask=None, bias=None):
    """Output and weights; keys and values repeated for each group's heads."""
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(x, group, axis=1) for x in (key, value))
    # The queries come scaled, which the oracle does by itself.
    query = query * np.sqrt(query.shape[-1])
    return reference.scaled_dot_product_attention(query, key, value, mask, bias)


def bounds(query, key, value, weights, bias, dtype):
    """How far the weights and the output may be off.

    A sum of n products of rounded numbers is off by n + 1 units of the sum of
    their magnitudes, whatever the order (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1), the final rounding included. Adding
    the bias rounds score and bias once more. Scores that are off by s change
    each weight by a factor of at most exp(2 s); exponentials good to two
    ulp, their sum and the quotient add n + 8 units of the softmax; then the
    weights are rounded to the dtype.
    """
    unit, fine = UNITS[dtype]
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(np.abs(x), group, axis=1) for x in (key, value))
    sizes = np.abs(query) @ np.swapaxes(key, -1, -2)
    score = sizes * (query.shape[-1] + 1) * unit
    if bias is not None:
        score = score + (sizes + 2 * np.abs(bias)) * fine
    score = np.max(score, axis=-1, keepdims=True)
    count = key.shape[-2]
    relative = np.exp(2 * score) * (1 + (count + 8) * fine) * (1 + unit) - 1
    # What is too small for a normal number of the dtype is lost.
    tiny = {"float16": 2.0**-25}.get(dtype, 2.0**-126)
    weight = weights * relative + tiny
    output = weight @ value + (weights + weight) @ value * (count + 1) * unit
    return weight, output + tiny


def check(near, query, key, value, mask=None, bias=None, dtype="float32"):
    query, query64 = rounded(query, dtype)
    key, key64 = rounded(key, dtype)
    value, value64 = rounded(value, dtype)
    bias64 = None
    if bias is not None:
        bias, bias64 = rounded(bias, dtype)
    output, weights = oracle(query64, key64, value64, mask, bias64)
    weight_bound, output_bound = bounds(
        query64, key64, value64, weights, bias64, dtype
    )
    mask = None if mask is None else ops.convert_to_tensor(mask)
    got = attention_weights(query, key, mask=mask, bias=bias)
    assert keras.backend.standardize_dtype(got.dtype) == dtype
    near(numpy(got), weights, weight_bound)
    attended = weighted_values(got, value)
    assert keras.backend.standardize_dtype(attended.dtype) == dtype
    near(numpy(attended), output, output_bound)
    fused = attend(query, key, value, mask=mask, bias=bias)
    assert keras.backend.standardize_dtype(fused.dtype) == dtype
    near(numpy(fused), output, output_bound)
    return got, attended, fused


def case(seed, batch=2, heads=4, kv_heads=4, queries=5, keys=7, dim=8):
    """Random queries, keys, values, a mask of each kind of row, a bias.

    Values are as wide as keys for every other seed: only then JAX and PyTorch
    have one operation for it.
    """
    random = np.random.default_rng(seed)
    query = random.normal(size=(batch, heads, queries, dim)) / np.sqrt(dim)
    key = random.normal(size=(batch, kv_heads, keys, dim))
    value = random.normal(size=(batch, kv_heads, keys, dim + seed % 2))
    mask = random.random((batch, 1, queries, keys)) < 0.6
    mask[0, 0, 0] = False  # attends to nothing
    mask[0, 0, -1] = True
    bias = random.normal(size=(1, heads, queries, keys))
    return query, key, value, mask, bias


@pytest.mark.parametrize(
    ("kv_heads", "dtype"),
    [(4, "float32"), (4, "float16"), (4, "bfloat16"), (1, "bfloat16"), WIDE],
)
def test_against_the_oracle(kv_heads, dtype, near):
    query, key, value, mask, bias = case(0, kv_heads=kv_heads)
    check(near, query, key, value, dtype=dtype)
    check(near, query, key, value, mask=mask, dtype=dtype)
    check(near, query, key, value, bias=bias, dtype=dtype)
    check(near, query, key, value, mask, bias, dtype)


@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    dim=st.integers(1, 5),
)
def test_any_shape(seed, batch, kv_heads, group, queries, keys, dim, near):
    query, key, value, mask, bias = case(
        seed, batch, group * kv_heads, kv_heads, queries, keys, dim
    )
    check(near, query, key, value, mask, bias)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 7), (2, 1, 1, 7), (1, 4, 5, 7), (2, 1, 5, 1)]
)
def test_masks_and_biases_broadcast(shape, near):
    query, key, value, _, _ = case(2)
    random = np.random.default_rng(1)
    mask = random.random(shape) < 0.7
    # Large ones too: a hidden key stays hidden.
    check(near, query, key, value, mask, 100 * random.normal(size=shape))


# How far down all scores are moved, which changes no softmax: by what the
# queries and keys are, or by a bias.
@pytest.mark.parametrize(
    ("dtype", "of_bias", "of_keys"),
    [
        ("float16", None, -60000),
        ("bfloat16", -1e30, 0),
        ("float32", None, -60000),
        ("float32", -1e6, -60000),
        ("float32", -1e30, 0),
    ],
)
def test_masked_keys_weigh_nothing(dtype, of_bias, of_keys):
    query, key, value, mask, bias = case(2)
    query[..., 0], key[..., 0] = 1, of_keys
    query, key, value = (rounded(x, dtype)[0] for x in (query, key, value))
    if of_bias is not None:
        of_bias, _ = rounded(20 * bias + of_bias, "float32")
    weights = numpy(
        attention_weights(
            query, key, mask=ops.convert_to_tensor(mask), bias=of_bias
        )
    )
    mask = np.broadcast_to(mask, weights.shape)
    attends = np.any(mask, axis=-1, keepdims=True)
    assert np.all(weights[attends & ~mask] == 0)
    # Those of n keys add up to 1, but for the roundings of the sum, of the
    # quotient and of each weight.
    unit, fine = UNITS[dtype]
    total = np.sum(weights, axis=-1, keepdims=True)
    count = weights.shape[-1]
    assert np.all(abs(total - 1)[attends] <= (count + 8) * fine + unit)


def test_a_bias_that_leaves_no_key_leaves_numbers():
    """Such as those of a padded query, which gradients would spread."""
    query, key, value, mask, _ = case(2)
    mask = np.ones_like(mask)
    mask[..., -1] = False
    shape = (*query.shape[:2], *mask.shape[-2:])
    bias = ops.convert_to_tensor(np.full(shape, -np.inf, "float32"))
    query, key, value = (rounded(x, "float32")[0] for x in (query, key, value))
    found = ops.convert_to_numpy(
        attention_weights(query, key, mask=mask, bias=bias)
    )
    allowed = mask.shape[-1] - 1
    np.testing.assert_allclose(found[..., :-1], 1 / allowed, rtol=2.0**-22)
    assert not found[..., -1].any()
    attended = attend(query, key, value, mask=mask, bias=bias)
    assert np.all(np.isfinite(ops.convert_to_numpy(attended)))


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [(1, "float32"), (2, "float16"), (7, "bfloat16"), (64, "float32")],
)
def test_a_query_without_keys_weighs_all_alike(keys, dtype):
    query, key, value, _, bias = case(3, keys=keys)
    mask = np.zeros((2, 1, 5, keys), "bool")
    query, key, value, bias = (
        rounded(x, dtype)[0] for x in (query, key, value, bias)
    )
    weights = attention_weights(
        query, key, mask=ops.convert_to_tensor(mask), bias=bias
    )
    weights = numpy(weights)
    assert np.all(weights == weights[..., :1])
    # Not 1 / keys itself: some processors divide by an approximate inverse.
    unit, fine = UNITS[dtype]
    assert np.all(abs(keys * weights - 1) <= (keys + 8) * fine + unit)
    attended = attend(query, key, value, mask=ops.convert_to_tensor(mask))
    assert np.all(np.isfinite(numpy(attended)))


def test_low_precision_sums_up_many_keys(near):
    # In bfloat16 a sum of 4096 equal terms would stop growing at 256.
    query = np.zeros((1, 1, 1, 2))
    key = np.zeros((1, 1, 4096, 2))
    query, key = (rounded(x, "bfloat16")[0] for x in (query, key))
    weights = attention_weights(query, key)
    near(numpy(weights), np.full((1, 1, 1, 4096), 2.0**-12))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_rounds_weights_once(dtype, near):
    # Scores of 0, to which biases that the dtype holds exactly are added.
    query, key, value = np.zeros((3, 1, 1, 1000, 2))
    bias = np.random.default_rng(0).normal(scale=5, size=(1, 1, 1, 1000))
    check(near, query[:, :, :1], key, value, bias=bias, dtype=dtype)
