"""Kerple and Fire: other libraries, the papers, and refusals."""

import math
from pathlib import Path

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref

FIXTURES = np.load(
    Path(__file__).parents[1] / "fixtures/learned_bias_parity.npz"
)
UNIT = 2.0**-24
HEADS = 3
POSITIONS = np.array([[0, 1, 2, 600, 100_000], [7, 3, 3, 0, 12]])


def built(layer):
    layer.build((None, HEADS, None, 4))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    return layer


def bias_of(layer, query_positions, key_positions):
    query = ops.zeros((1, HEADS, 1, 4))
    places = map(ops.convert_to_tensor, (query_positions, key_positions))
    return ops.convert_to_numpy(layer.bias(query, query, *places))


def case_of(prefix):
    return {
        name.removeprefix(prefix): FIXTURES[name]
        for name in FIXTURES.files
        if name.startswith(prefix)
    }


@pytest.mark.parametrize("key", ["log/both", "log/causal", "power/both"])
def test_kerple_parity(key, near):
    """Theirs, in float32, has as many roundings as ours."""
    case, (variant, directions) = case_of(f"kerple/{key}/"), key.split("/")
    layer = kp.positions.KerpleBias(variant, bidirectional=directions == "both")
    scale, shape = case["scale"], case["shape"]
    shape = np.log(shape) if variant == "log" else -np.log(2 / shape - 1)
    layer.build((None, HEADS, None, 4))
    layer.set_weights([np.log(scale), shape])
    want = case["bias"]
    places = np.arange(want.shape[-1])[np.newaxis]
    # An exponent of up to 2 log(23), and two weights through a logarithm.
    bound = 2 * (8 + 2 * math.log(23) * 4) * UNIT * np.abs(want) + UNIT
    near(bias_of(layer, places, places)[0], want, bound)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("threshold", [0.5, 9.0, 512.0])
def test_fire_parity(threshold, bidirectional, near):
    case = case_of(f"fire/{threshold}/")
    hidden = case["hidden_bias"].size
    layer = kp.positions.FireBias(
        hidden, initial_threshold=threshold, bidirectional=bidirectional
    )
    layer.build((None, HEADS, None, 4))
    names = ("hidden_kernel", "hidden_bias", "output_kernel")
    network = [case[name] for name in names]
    layer.set_weights([np.log(case["rate"]), np.array(0.0), *network])
    want = case["bias"]
    places = np.arange(want.shape[-1])[np.newaxis]
    earlier = ~np.isnan(want)
    got = bias_of(layer, places, places)[0]
    steep = np.abs(network[0]) @ np.abs(network[2])
    bound = share_bound(case["rate"], threshold) * steep.max()
    near(got[earlier], want[earlier], bound + 4 * np.sqrt(32) * 8 * UNIT)


def share_bound(rate, threshold):
    """How far the share of a distance, of at most 1, may be off.

    The published code's 1e-6 over the logarithm at least, and some roundings.
    """
    return 1e-6 / np.log(1 + rate * threshold) + 16 * UNIT


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("variant", ["log", "power"])
def test_kerple_is_the_paper(variant, bidirectional, near):
    layer = built(kp.positions.KerpleBias(variant, bidirectional=bidirectional))
    scale, shape = (w.astype("float64") for w in layer.get_weights())
    scale = np.exp(scale)
    shape = np.exp(shape) if variant == "log" else 2 / (1 + np.exp(-shape))
    keys = POSITIONS[:, ::2]
    relative = keys[:, np.newaxis] - POSITIONS[..., np.newaxis]
    distance = np.abs(relative) if bidirectional else np.maximum(-relative, 0)
    want = ref.kerple_bias(distance, scale, shape, variant)
    # Half a dozen roundings, of which an exponent's of up to 23 = 2 log(1e5).
    bound = (6 + 2 * 23) * UNIT * np.abs(want) + UNIT
    near(bias_of(layer, POSITIONS, keys), want, bound)


def test_kerple_is_one_at_first(near):
    layer = kp.positions.KerpleBias("power")
    layer.build((None, HEADS, None, 4))
    bias = bias_of(layer, [[0]], [[0, 1, 5]])
    near(bias[0, :, 0], np.tile([0.0, -1.0, -5.0], (HEADS, 1)), 8 * UNIT * 5)


def fire_weights(layer):
    names = ("hidden_kernel", "hidden_bias", "output_kernel")
    log_rate, log_factor, *network = layer.get_weights()
    return (
        np.exp(float(log_rate)),
        np.exp(float(log_factor)) * layer.initial_threshold,
        dict(zip(names, network, strict=True)),
    )


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("threshold", [0.5, 512])
def test_fire_is_the_paper(bidirectional, threshold, near):
    layer = built(
        kp.positions.FireBias(
            initial_threshold=threshold, bidirectional=bidirectional
        )
    )
    got = bias_of(layer, POSITIONS, POSITIONS)
    want = ref.fire_bias(POSITIONS, POSITIONS, *fire_weights(layer))
    earlier = ~np.isnan(want)
    assert earlier.mean() > 0.5
    # The share, then 32 products.
    rate, threshold, network = fire_weights(layer)
    steep = np.abs(network["hidden_kernel"]) @ np.abs(network["output_kernel"])
    share = share_bound(rate, threshold)
    bound = steep.max() * share + 4 * np.sqrt(32) * 8 * UNIT
    near(got[earlier], want[earlier], bound)
    if bidirectional:
        near(got, np.swapaxes(got, -1, -2), 2 * bound)
    else:
        zero = np.broadcast_to(
            np.diagonal(got, axis1=-2, axis2=-1)[..., np.newaxis], got.shape
        )
        near(got[~earlier], zero[~earlier], 2 * bound)
