"""Rotary embeddings: the papers, Hugging Face's numbers, and refusals."""

import functools
import itertools
import json

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference as ref
from tests.layers import cases_of, draw, numpy, rotary_rates

LAYOUTS = ("halves", "interleaved")
FAR = 2**24
UNIT = 2.0**-24
DIM = 16
SCALINGS = {
    "default": {},
    "linear": {"factor": 4},
    "dynamic": {"factor": 4, "original_max_position_embeddings": 64},
    "yarn": {"factor": 8, "original_max_position_embeddings": 64},
    "longrope": {
        "factor": 4,
        "original_max_position_embeddings": 64,
        "short_factor": [1.0 + j / 8 for j in range(DIM // 2)],
        "long_factor": [2.0 + j for j in range(DIM // 2)],
    },
    "llama3": {
        "factor": 8,
        "original_max_position_embeddings": 64,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
    },
    "proportional": {"partial_rotary_factor": 0.5, "factor": 2},
    "clipped": {"clipped_pairs": 5},
}


def of(rope_type):
    return {"rope_type": rope_type, **SCALINGS[rope_type]}


def scaled(rope_type, **options):
    return kp.RotaryEmbedding(scaling=of(rope_type), **options)


def rates_of(layer, dim=DIM, length=0):
    return rotary_rates(layer.scaling, dim, layer.max_wavelength, length)


# How far a turned feature may be off, for features of size 1: a sine and a
# cosine with their bound, two products and a sum.
def turned_bound(x, sine_bound):
    return 2 * np.max(np.abs(x)) * (sine_bound + 2 * UNIT)


# ---- Against Hugging Face


HUGGING_FACE = cases_of("position_parity")
CASES = [case for case in HUGGING_FACE if case.startswith("rope/")]


def case_of(key):
    case = HUGGING_FACE[key]
    layer = kp.RotaryEmbedding(
        max_wavelength=float(case["max_wavelength"]),
        partial_rotary_factor=float(case["partial_rotary_factor"]),
        scaling=json.loads(str(case["scaling"])),
    )
    return case, layer


@pytest.mark.parametrize("key", CASES)
def test_frequencies_parity(key, near):
    """The frequencies in use, read off small steps from a whole position.

    Theirs are rounded to float32 after half a dozen operations, of which an
    exponential with an exponent of up to 14.
    """
    case, layer = case_of(key)
    *_, width = case["inputs"].shape
    for length, theirs in zip(case["lengths"], case["inv_freq"], strict=True):
        dim = 2 * len(theirs)
        want = rates_of(layer, dim, int(length))
        near(theirs, want, 32 * UNIT * want)
        # One pair at a time, as a unit vector that turns.
        x = np.zeros((dim // 2, 2, width), "float32")
        x[:, 0, : dim // 2] = np.eye(dim // 2)
        turned = numpy(layer(x, positions=np.array([1, length - 1])))[:, 0]
        angle = np.arctan2(
            np.diag(turned[:, dim // 2 : dim]), np.diag(turned[:, : dim // 2])
        )
        near(angle, want, 8 * UNIT)


@pytest.mark.parametrize(
    ("key", "layout"),
    [(key, LAYOUTS[index % 2]) for index, key in enumerate(CASES)],
)
def test_rotation_parity(key, layout, near):
    """Their angles are float32 products, off by half a unit of theirs."""
    case, layer = case_of(key)
    layer = type(layer).from_config({**layer.get_config(), "layout": layout})
    x = case["inputs"]
    for index, length in enumerate(case["lengths"]):
        positions = np.arange(x.shape[2])
        positions[-1] = length - 1
        rates = case["inv_freq"][index]
        angle = 34 * UNIT * (positions[:, None] * rates).max(-1)
        bound = turned_bound(x, angle + 8 * UNIT)[..., None]
        scale = float(case["attention_scaling"])
        rotated = layer.rotate(ops.convert_to_tensor(x), positions[None])
        near(rotated, case[layout][index], scale * bound)


# ---- Against the papers


def test_clipped_rates():
    """Li et al. (2026), the window of their code."""
    share = np.array([0, 0, 0, 0, 0.25, 0.5, 0.75, 1])
    window = (1 + np.cos(np.pi * share)) / 2
    want = 10000 ** (-np.arange(8) / 8) * window
    np.testing.assert_allclose(rates_of(scaled("clipped")), want, atol=1e-15)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rope_type", [k for k in SCALINGS if k != "dynamic"])
def test_exact_far_out(rope_type, layout, near, encoding_bound):
    rng = np.random.default_rng(0)
    layer = scaled(rope_type, layout=layout)
    x = rng.normal(size=(3, 50, DIM)).astype("float32")
    scale = numpy(layer(np.ones((1, 1, DIM), "f4"), positions=[0])).max()
    positions = np.concatenate(
        [
            rng.integers(-FAR, FAR, (3, 20)),
            rng.uniform(-FAR, FAR, (3, 20)).astype("float32"),
            rng.uniform(0, 100, (3, 9)).astype("float32"),
            np.full((3, 1), FAR - 1),
        ],
        axis=1,
    )
    rates = rates_of(layer, length=FAR)
    want = ref.rotary_embedding(x, positions, rates, layout)
    bound = encoding_bound(positions, positions)
    got = numpy(layer(x, positions=positions))
    near(got, scale * want, scale * turned_bound(x, bound))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_low_precision_rounds_once(dtype, near, half_ulp, encoding_bound):
    low = dtype.removeprefix("mixed_")
    rng = np.random.default_rng(1)
    x = ops.cast(rng.normal(size=(2, 9, DIM)), low)
    positions = FAR - 1 - np.arange(9) * 1000
    got = kp.RotaryEmbedding(dtype=dtype)(x, positions=positions)
    assert keras.backend.standardize_dtype(got.dtype) == low
    exact = numpy(ops.cast(x, "float32"))
    want = ref.rotary_embedding(
        exact, positions, rates_of(kp.RotaryEmbedding())
    )
    slack = turned_bound(exact, encoding_bound(positions, positions))
    bound = slack + half_ulp(np.abs(want) + slack, low)
    near(ops.cast(got, "float32"), want, bound)


def test_float64(near, encoding_bound):
    if keras.config.backend() == "jax":
        pytest.skip("JAX computes in float32 unless told otherwise")
    x = np.random.default_rng(2).normal(size=(2, 9, DIM))
    positions = FAR - 1 - np.arange(9) * 1000
    got = kp.RotaryEmbedding(dtype="float64")(x, positions=positions)
    want = ref.rotary_embedding(x, positions, rates_of(kp.RotaryEmbedding()))
    bound = encoding_bound(positions, positions, "float64")
    near(got, want, 4 * np.abs(x).max() * bound)


@pytest.mark.parametrize("length", [65, 100, 5000, FAR])
def test_dynamic_follows_the_length(length, near):
    """Frequencies to float32: an angle is off by 2**-21 of itself."""
    layer = scaled("dynamic")
    x = draw(1, 4, DIM)
    positions = np.array([0, 1, 63, length - 1])
    rates = rates_of(layer, length=length)
    want = ref.rotary_embedding(x, positions, rates)
    near(layer(x), numpy(scaled("default")(x)), 24 * UNIT)
    # The first pair never slows down.
    angle = np.maximum(positions * rates[1] * 2.0**-21, 24 * UNIT)
    bound = turned_bound(x, angle)[..., None]
    near(layer(x, positions=positions), want, bound)
    plain = ref.rotary_embedding(x, positions, rates_of(scaled("default")))
    assert np.abs(want - plain).max() > 0.01


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_length_is_that_of_the_row_without_its_padding(rope_type):
    layer = scaled(rope_type)
    x = draw(2, 130, DIM)
    mask = np.arange(130) < np.array([[130], [40]])
    together = numpy(layer(x, mask=mask))
    np.testing.assert_array_equal(together[:1], numpy(layer(x[:1])))
    np.testing.assert_array_equal(together[1:, :40], numpy(layer(x[1:, :40])))
    assert np.any(together[1:, :40] != numpy(layer(x[1:]))[:, :40])
    attention = kp.SelfAttention(1, attention=layer)
    together = numpy(attention(x, mask=mask))[1:, :40]
    alone = numpy(attention(x[1:, :40]))
    np.testing.assert_allclose(together, alone, rtol=0, atol=64 * UNIT)


@pytest.mark.parametrize(
    "make",
    [
        *(functools.partial(scaled, kind) for kind in SCALINGS),
        kp.positions.XPosEmbedding,
        kp.positions.PolarEmbedding,
        functools.partial(kp.positions.FourierEmbedding, 100),
    ],
)
def test_positions_out_of_range_turn_to_nan(make):
    """Of every kind that turns queries and keys."""
    position = make()
    position.build((None, 4, None, DIM))
    x = ops.ones((1, 4, 3, DIM))
    learns = bool(position.weights)  # and may leave some features
    beyond = [np.nan, 2.0**24 + 2, -(2.0**24) - 2]
    if make is kp.positions.XPosEmbedding:
        beyond += [-4097, 53_760]
    for hook, bad in itertools.product(("rotate", "rotate_keys"), beyond):
        places = np.array([[1, bad, 2]], "float32")
        outputs = numpy(position.turned(hook, x, places, {}))
        lost = np.isnan(outputs[:, :, 1])
        assert lost.any(axis=-1).all() if learns else lost.all()
        assert np.isfinite(outputs[:, :, ::2]).all()


def test_partial_leaves_the_rest():
    x = draw(2, 9, 10)
    outputs = numpy(kp.RotaryEmbedding(partial_rotary_factor=0.4)(x))
    np.testing.assert_array_equal(outputs[..., 4:], x[..., 4:])
    whole = numpy(kp.RotaryEmbedding()(x[..., :4]))
    np.testing.assert_array_equal(outputs[..., :4], whole)


# ---- As a layer on a tensor


def test_heads_between_tokens_and_features(near):
    layer, x = kp.RotaryEmbedding(), draw(2, 9, 3, 4)
    start = np.array([5, 1000])
    positions = (start[:, None] + np.arange(9))[:, np.newaxis]
    want = ref.rotary_embedding(
        np.swapaxes(x, 1, 2), positions, rates_of(layer, 4)
    )
    got = layer(x, start_index=start)
    near(got, np.swapaxes(want, 1, 2), turned_bound(x, 9 * UNIT))
    assert (
        layer.compute_output_spec(keras.KerasTensor(x.shape)).shape == x.shape
    )


def test_scaling_of_a_config():
    """A config of Hugging Face may name keys without a value."""
    layer = kp.RotaryEmbedding(scaling={**of("yarn"), "attention_factor": None})
    assert layer.get_config()["scaling"] == of("yarn")
    assert kp.RotaryEmbedding().scaling == {"rope_type": "default"}
