"""PoPE and FoPE: the papers, other libraries, and refusals."""

import math

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests.layers import cases_of, draw, numpy

UNIT = 2.0**-24
HEADS, DIM = 4, 8


def built(layer, heads=HEADS, dim=DIM):
    layer.build((None, heads, None, dim))
    return layer


# ---- PoPE


def test_polar_parity(near):
    """Attention of PoPE-pytorch, with a bias that is cut to its range."""
    given = cases_of("polar_parity")["polar"]
    position = kp.positions.PolarEmbedding()
    layer = kp.SelfAttention(2, use_bias=False, attention=position)
    x = given["inputs"]
    layer.build(x.shape)
    names = ("query_kernel", "key_kernel", "value_kernel")
    layer.query_key_value.set_weights(
        [np.concatenate([given[name] for name in names], axis=1)]
    )
    layer.output_projection.set_weights([given["output_kernel"]])
    position.set_weights([given["bias"]])
    got = layer(x, use_causal_mask=True, start_index=int(given["start_index"]))
    # Its frequencies are float32's, at positions up to 12; scores of up to 30.
    near(got, given["outputs"], 30 * (12 + 16) * UNIT)


@pytest.mark.parametrize("far", [2**24 - 600, -(2**20), 0.25])
def test_polar_sees_differences_alone(far, near):
    """... of grouped keys: the bias is of each head of queries."""
    position = built(kp.positions.PolarEmbedding(max_wavelength=500))
    bias = np.random.default_rng(3).uniform(-2 * math.pi, 0, (HEADS, DIM))
    position.set_weights([bias])
    query = ops.convert_to_tensor(3 * draw(1, HEADS, 4, DIM) * DIM**-0.5)
    key = ops.convert_to_tensor(3 * draw(1, 2, 4, DIM, seed=1))

    def scores(key, places):
        turned = numpy(position.rotate(query, places))
        keys = numpy(position.rotate_keys(key, places))
        keys = np.repeat(keys, HEADS // keys.shape[1], axis=1)
        return turned @ np.swapaxes(keys, -1, -2)

    places = np.array([[0, 3, 3, 500]])
    want = scores(ops.repeat(key, 2, axis=1), places)
    size = np.abs(want).max() * DIM
    near(scores(key, places + far), want, 32 * UNIT * size)


# ---- FoPE


def test_fourier_parity(near):
    """vLLM's rotation of grouped heads, of which some pairs stay."""
    given = cases_of("polar_parity")["fourier"]
    position = kp.positions.FourierEmbedding(
        int(given["training_length"]), num_key_value_heads=2
    )
    built(position, 4, 16)
    position.set_weights([given["coefficients"]])
    for name in ("query", "key"):
        x = ops.convert_to_tensor(given[name][np.newaxis])
        got = position.rotate(x, given["positions"][np.newaxis])
        # Its angles are of up to 99, in float32.
        near(got[0], given[f"rotated_{name}"], 8 * 99 * UNIT * 8)


def test_fourier_begins_near_a_rotation(near):
    """The identity plus numbers as large as the published code draws them."""
    exact = built(kp.positions.FourierEmbedding(10**6, gain=0))
    x = ops.convert_to_tensor(draw(1, HEADS, 5, DIM))
    places = np.arange(5)[np.newaxis]
    near(
        exact.rotate(x, places),
        numpy(kp.RotaryEmbedding().rotate(x, places)),
        8 * UNIT,
    )
    layer = built(kp.positions.FourierEmbedding(512, seed=2), heads=8, dim=64)
    noise = numpy(layer.coefficients) - np.eye(16)
    # Of a normal distribution: its deviation is known within 1 in sqrt(2 n).
    known = 0.3 * np.sqrt(2 / (16 * (16 + 8)))
    assert abs(noise.std() / known - 1) < 5 / np.sqrt(2 * noise.size)
    assert not layer.trainable_weights
    assert not np.array_equal(*noise)


# ---- Both


def test_a_subclass_has_its_own_hook():
    """What a class keeps for other blocks is of its own `rotate` alone."""

    def ones(self, x, positions):
        return ops.ones_like(x)

    x = ops.convert_to_tensor(draw(1, HEADS, 3, DIM))
    places = np.arange(3)[np.newaxis]
    for kind, hook in (
        (kp.positions.XPosEmbedding, "rotate"),
        (kp.positions.XPosEmbedding, "rotate_keys"),
        (kp.RotaryEmbedding, "rotate"),
    ):
        mine = type("Mine", (kind,), {hook: ones})()
        mixed_in = type("Mixed", (type("In", (), {hook: ones}), kind), {})()
        for each in (mine, mixed_in):
            assert np.ptp(numpy(each.turned(hook, x, places, {}))) == 0
        assert np.ptp(numpy(kind().turned(hook, x, places, {}))) > 0
