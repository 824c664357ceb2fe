"""Relative keys and values: the paper, Hugging Face, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/position_parity.npz")
HEADS, DIM, REACH = 2, 8, 3
# Four standard deviations of sums of 16 products of size 1 and some more.
FLOAT32 = 4 * np.sqrt(32 * 8) * 2**-24


def test_relative_keys_parity(near):
    query, keys = FIXTURES["shaw/query"], FIXTURES["shaw/keys"]
    layer = kp.positions.RelativePositionEmbedding(REACH, values=False)
    layer.build(query.shape)
    layer.set_weights([keys])
    positions = ops.expand_dims(ops.arange(query.shape[2]), 0)
    scaled = ops.convert_to_tensor(query * query.shape[-1] ** -0.5)
    bias = layer.bias(scaled, scaled, positions, positions)
    near(bias, FIXTURES["shaw/bias"], FLOAT32)


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("given", ["nothing", "row", "rows"])
def test_is_the_paper(values, given, near):
    rng = np.random.default_rng(0)
    layer = kp.SelfAttention(
        HEADS,
        attention=kp.positions.RelativePositionEmbedding(REACH, values=values),
    )
    x = rng.normal(size=(3, 9, DIM)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape) / np.sqrt(DIM))
    positions = {
        "nothing": np.arange(9),
        "row": rng.permutation(9),
        "rows": rng.integers(-20, 20, (3, 9)),
    }[given]
    mask = rng.random((3, 9)) < 0.8
    extra = {} if given == "nothing" else {"positions": positions}
    got = layer(x, mask=mask, **extra)

    def weights_of(dense):
        return [
            ops.convert_to_numpy(w).astype("float64") for w in dense.weights
        ]

    kernel, bias = weights_of(layer.query_key_value)
    x = np.where(mask[..., np.newaxis], x, 0)  # as padding counts
    projected = np.reshape(x @ kernel + bias, (3, 9, 3, HEADS, DIM // HEADS))
    # (batch, seq, three, heads, dim) -> three of (batch, heads, seq, dim)
    q, k, v = np.transpose(projected, (2, 0, 3, 1, 4))
    tables = layer.attention.position.get_weights()
    if extra:  # padding stands nowhere
        positions = np.where(mask, positions, 0)
    places = np.broadcast_to(positions, (3, 9))[:, np.newaxis]
    attended = ref.relative_attention(
        q, k, v, places, *tables, mask=mask[:, np.newaxis, np.newaxis]
    )
    kernel, bias = weights_of(layer.output_projection)
    joined = np.reshape(np.swapaxes(attended, 1, 2), (3, 9, DIM))
    near(got, joined @ kernel + bias, FLOAT32)
