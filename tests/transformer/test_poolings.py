"""Poolings: a sequence as one vector."""

from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

KINDS = ["first", "last", "mean", "max", "mean_sqrt_length", "weighted_mean"]
BY_MODE = {
    "lasttoken": "last",
    "mean_sqrt_len_tokens": "mean_sqrt_length",
    "weightedmean": "weighted_mean",
}
FIXTURES = Path(__file__).parent.parent / "fixtures"
# Sums of 6 products in float32, of numbers up to 3.
TOLERANCE = 2e-6


@pytest.mark.parametrize("mode", BY_MODE)
def test_parity_with_sentence_transformers(mode):
    """Padded on either side; what padding holds does not matter."""
    with np.load(FIXTURES / "sentences" / "expected.npz") as arrays:
        tokens, mask, expected = (
            arrays[f"pooled/{name}"] for name in ("tokens", "mask", mode)
        )
    for padding in (0, np.nan):
        x = np.where(mask[:, :, None], tokens, padding).astype("float32")
        pooling = kp.Pooling1D(BY_MODE[mode])
        found = ops.convert_to_numpy(pooling(x, mask=mask))
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_several_at_once():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    mask = np.array([[True, True, False], [False, True, True]])
    found = kp.Pooling1D(["last", "mean"])(x, mask=mask)
    means = (x[0, :2].mean(axis=0), x[1, 1:].mean(axis=0))
    wanted = [[*x[0, 1], *means[0]], [*x[1, 2], *means[1]]]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(kp.Pooling1D("mean")(x), x.mean(axis=1))
    for wrong in ([], "average", ["mean", None], [["mean"]], None, 3):
        with pytest.raises(ValueError, match="`kind` must be one of 'mean', "):
            kp.Pooling1D(wrong)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [
        (1.0, "float32"),
        (-1e30, "float32"),
        (-6.5e4, "float16"),
        (-1e30, "bfloat16"),
        (-np.inf, "bfloat16"),
        pytest.param(-np.inf, "float64", marks=pytest.mark.tensorflow),
    ],
)
def test_the_maximum_is_of_a_token(largest, dtype):
    """... not what stands where padding is, however low the tokens are."""
    tokens = [[[largest], [-np.inf], [5.0], [-np.inf]]]
    tokens = ops.cast(np.array(tokens, "float32"), dtype)
    mask = np.array([[True, True, False, False]])
    found = kp.Pooling1D("max", dtype=dtype)(tokens, mask=mask)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(ops.cast(found, "float32")),
        ops.convert_to_numpy(ops.cast(tokens[:, 0], "float32")),
    )


@pytest.mark.parametrize("size", [1.0, 1e-30, 1e-20, 1e20, 1e37])
def test_vectors_of_any_length(size):
    """... also those whose squares are no float32 numbers."""
    x = np.random.default_rng(3).normal(size=(8, 384)) * size
    x = x.astype("float32")
    found = ops.convert_to_numpy(kp.L2Normalization()(x))
    exact = x.astype("float64")
    exact /= np.linalg.norm(exact, axis=-1, keepdims=True)
    # A sum of 384 squares, its root and a quotient.
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_row_of_padding_becomes_zeros(kind):
    """Next to one with tokens; the first token alone counts masked, too."""
    x = np.ones((2, 3, 4), "float32")
    mask = np.array([[False] * 3, [False, True, False]])
    found = ops.convert_to_numpy(kp.Pooling1D(kind)(x, mask=mask))
    np.testing.assert_array_equal(found, [[0] * 4, [1] * 4])


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_long_sums_are_not_taken_in_a_low_dtype(dtype):
    # 4 096 ones: a bfloat16 sum stops at 256, and float16 has no 70 000.
    layer = kp.Pooling1D("mean", dtype=dtype)
    for value in (1.0, 20.0):
        outputs = layer(np.full((1, 4096, 1), value, "float32"))
        assert ops.convert_to_numpy(ops.cast(outputs, "float32")) == value
