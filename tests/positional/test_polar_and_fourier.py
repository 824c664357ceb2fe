"""PoPE and FoPE: the papers, other libraries, and refusals."""

import math
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref
from tests.layers import randomised

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/polar_parity.npz")
UNIT = 2.0**-24
HEADS, DIM = 4, 8


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x), "float64")


def draw(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape).astype("float32")


def case(name):
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): FIXTURES[key]
        for key in FIXTURES.files
        if key.startswith(prefix)
    }


def built(layer, heads=HEADS, dim=DIM):
    layer.build((None, heads, None, dim))
    return layer


# ---- PoPE


def test_polar_parity(near):
    """Attention of PoPE-pytorch, with a bias that is cut to its range."""
    given = case("polar")
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


@pytest.mark.parametrize(
    "places",
    [
        [0, 1, 7, 300, 5000, 2**20, 2**24],
        [-(2**24), -300, -1, 0, 0.5, 100.25, 1e6],
    ],
)
def test_polar_is_the_paper(places, near):
    """... of grouped keys: the bias is of each head of queries."""
    position = built(kp.positions.PolarEmbedding(max_wavelength=500))
    bias = np.random.default_rng(3).uniform(-2 * math.pi, 0, (HEADS, DIM))
    position.set_weights([bias])
    query = 3 * draw(1, HEADS, 7, DIM)
    key = 3 * draw(1, 2, 7, DIM, seed=1)
    places = np.array([places])
    turned, keys = (
        numpy(hook(ops.convert_to_tensor(x), places))[0]
        for hook, x in (
            (position.rotate, query * np.float32(DIM**-0.5)),
            (position.rotate_keys, key),
        )
    )
    assert turned.shape == (HEADS, 7, 2 * DIM)
    for head in range(HEADS):
        q, k = query[0, head], key[0, head // 2]
        want = ref.polar_scores(
            q, k, *2 * [places[0]], bias[head].astype("float32"), 500
        )
        size = np.logaddexp(0, q) @ np.logaddexp(0, k).T
        # Sines within 6e-7 each, and a dozen roundings.
        near(
            turned[head] @ keys[head // 2].T * DIM**0.5, want, 32 * UNIT * size
        )


# ---- FoPE


def test_fourier_parity(near):
    """vLLM's rotation of grouped heads, of which some pairs stay."""
    given = case("fourier")
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


@pytest.mark.parametrize("training_length", [7, 100, 10**6])
def test_fourier_is_the_paper(training_length, near):
    position = built(
        kp.positions.FourierEmbedding(training_length, gain=2.0, seed=1)
    )
    (coefficients,) = position.get_weights()
    places = np.array([[-5, 0, 1, 2.5, 300, 2**20, 2**24]])
    x = draw(1, HEADS, 7, DIM)
    got = numpy(position.rotate(ops.convert_to_tensor(x), places))[0]
    for head in range(HEADS):
        want = ref.fourier_embedding(
            x[0, head], places[0], coefficients[:, head], training_length
        )
        size = np.abs(coefficients).sum(axis=2).max() * np.abs(x).max()
        near(got[head], want, 32 * UNIT * size)


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


@pytest.mark.parametrize(
    "make",
    [kp.positions.PolarEmbedding, lambda: kp.positions.FourierEmbedding(100)],
)
def test_out_of_reach_is_nan(make):
    position = built(make())
    x = ops.convert_to_tensor(draw(1, HEADS, 2, DIM))
    for bad in (np.nan, 2.0**24 + 2):
        for hook in ("rotate", "rotate_keys"):
            outputs = numpy(
                position.turned(hook, x, np.array([[1, bad]], "float32"), {})
            )
            assert np.isnan(outputs[0, :, 1]).any()
            assert np.isfinite(outputs[0, :, 0]).all()


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


def test_combined_with_what_scales_and_biases(near):
    """PoPE first: the others get what it makes of queries and keys."""
    polar = kp.positions.PolarEmbedding()
    softmax = kp.positions.ScalableSoftmax()
    shaw = kp.positions.RelativePositionEmbedding(2, values=False)
    position = kp.positions.CombinedPosition([polar, softmax, shaw])
    layer = kp.SelfAttention(HEADS, attention=position)
    x = draw(1, 6, HEADS * DIM)
    layer.build(x.shape)
    randomised(layer)
    query = ops.convert_to_tensor(draw(1, HEADS, 6, DIM))
    places = ops.expand_dims(ops.arange(6), 0)
    want = softmax.rotate(polar.rotate(query, places), places)
    near(position.rotate(query, places), numpy(want), 0)
    assert np.isfinite(numpy(layer(x, use_causal_mask=True))).all()
