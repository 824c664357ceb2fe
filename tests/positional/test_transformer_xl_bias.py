"""Transformer-XL's terms: the paper, XLNet's numbers, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.attention import attention_weights
from tests import reference as ref

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/position_parity.npz")
HEADS, DIM = 2, 4
UNIT = 2.0**-24


def test_weights_parity(near):
    """XLNet's attention, which shifts rows of scores, gives these weights."""
    case = {
        key.removeprefix("xl/"): FIXTURES[key]
        for key in FIXTURES.files
        if key.startswith("xl/")
    }
    query, key = case["query"], case["key"]
    _, heads, seq, dim = query.shape
    layer = kp.positions.TransformerXLBias()
    layer.build(query.shape)
    layer.kernel.assign(np.reshape(case["kernel"], (-1, heads * dim)))
    layer.content_bias.assign(case["content_bias"])
    layer.position_bias.assign(case["position_bias"])
    positions = ops.expand_dims(ops.arange(seq), 0)
    scaled = ops.convert_to_tensor(query * dim**-0.5)
    key = ops.convert_to_tensor(key)
    bias = layer.bias(scaled, key, positions, positions)
    # Scores of size 4 from sums of 24 products, under a softmax.
    tolerance = 4 * np.sqrt(24) * 4 * UNIT
    near(
        attention_weights(scaled, key, mask=None, bias=bias),
        case["weights"],
        tolerance,
    )


POSITIONS = {
    "counted": np.arange(5)[np.newaxis],
    "rows": np.array([[0, 3, 3, 90, 1000], [7, -6, 5, 4, 3]]),
    "far": 2**24 - 1 - np.array([[0, 1, 5, 4096, 500_000]]),
    "real": np.array([[0.5, -3.25, 1e4 + 0.75, 2, 2.125]], "float32"),
}


@pytest.mark.parametrize(
    ("kind", "encoding_dim", "key_heads"),
    [
        ("counted", None, 2),
        ("rows", 6, 1),
        ("far", None, 1),
        ("real", 6, 2),
    ],
)
def test_is_the_paper(kind, encoding_dim, key_heads, near):
    rng = np.random.default_rng(0)
    layer = kp.positions.TransformerXLBias(encoding_dim, max_wavelength=1000)
    layer.build((None, HEADS, None, DIM))
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    positions = POSITIONS[kind]
    keys = positions[:, ::2]
    query = rng.normal(size=(2, HEADS, 5, DIM)).astype("float32")
    key = rng.normal(size=(2, key_heads, keys.shape[1], DIM)).astype("float32")
    places = map(ops.convert_to_tensor, (positions, keys))
    scaled = ops.convert_to_tensor(query * DIM**-0.5)
    got = layer.bias(scaled, ops.convert_to_tensor(key), *places)
    kernel, content, position = layer.get_weights()
    weights = {
        "kernel": np.reshape(kernel, (-1, HEADS, DIM)),
        "content_bias": content,
        "position_bias": position,
    }
    repeated = np.repeat(key, HEADS // key_heads, axis=1)
    want = ref.transformer_xl_bias(
        query, repeated, positions, keys, weights, 1000
    )
    # Two encodings of 1e-6 each, and the roundings of sums of products of
    # normals, by the sum of their magnitudes.
    size = np.abs(query).max() + np.abs(position).max()
    size = size * np.abs(kernel).max() * len(kernel) * DIM / np.sqrt(DIM)
    near(got, want, (2e-6 + 8 * UNIT) * size)
