"""Linear biases: the paper, Hugging Face's slopes, and refusals."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/position_parity.npz")
SLOPES = sorted(key for key in FIXTURES.files if key.startswith("alibi/"))
UNIT = 2.0**-24


def bias_of(layer, query_positions, key_positions, heads=4, dtype="float32"):
    query = ops.zeros((1, heads, np.shape(query_positions)[-1], 2), dtype)
    places = [
        ops.convert_to_tensor(positions)
        for positions in (query_positions, key_positions)
    ]
    return layer.bias(query, query, *places)


@pytest.mark.parametrize("key", SLOPES)
def test_slopes_parity(key, near):
    heads, bias_max = map(int, key.split("/")[1].split("_"))
    bias = bias_of(kp.AlibiBias(bias_max), [[0]], [[1]], heads)
    theirs = FIXTURES[key]
    # Theirs are powers, taken step by step in float32.
    tolerance = (2 + heads) * UNIT * theirs
    near(-np.asarray(bias)[0, :, 0, 0], theirs, tolerance)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("heads", "dtype", "positions"),
    [
        (1, "float32", np.arange(9)[None]),
        (
            3,
            "bfloat16",
            np.array(
                [[0, 1, 2**24 - 1, 1000], [-5, 7, 4097, -(2**23)]], "int32"
            ),
        ),
        (12, "float16", np.array([[0, 0.5, 1000.25, -3]], "float32")),
        pytest.param(
            5,
            "float32",
            np.array([[2**40 + 5, 0, 2**40 + 105]]),
            marks=pytest.mark.tensorflow,  # 64 bits
        ),
    ],
    ids=["counted", "far", "real", "times"],
)
def test_is_the_paper(bidirectional, heads, dtype, positions, near):
    """Rounded twice, slope and product, also beside low-precision queries."""
    layer = kp.AlibiBias(bidirectional=bidirectional, dtype=dtype)
    queries = positions[:, ::2]
    got = bias_of(layer, queries, positions, heads, dtype)
    assert keras.backend.standardize_dtype(got.dtype) == "float32"
    want = ref.alibi_bias(
        queries, positions, heads, bidirectional=bidirectional
    )
    near(got, want, 2.1 * UNIT * np.abs(want))
