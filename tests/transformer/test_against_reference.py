"""The encoder against the NumPy oracle, over drawn sizes and masks."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference as ref

# A float32 answer is off by its roundings, which are independent: four
# standard deviations of their sum. A block has 26 (see the layer contract),
# each of a sum of up to 32 products, and 4 more where a norm, dividing by a
# small deviation, makes what came before it larger.
FLOAT32 = 4 * np.sqrt(30 * 32) * 2**-24

property_test = settings(deadline=None, max_examples=25, derandomize=True)


@st.composite
def cases(draw):
    kv_heads = draw(st.integers(1, 3))
    group = draw(st.integers(1, 3))
    heads = kv_heads * group
    head_dim = draw(st.integers(-(-8 // heads), max(4, -(-8 // heads))))
    return {
        "num_heads": heads,
        "num_key_value_heads": kv_heads,
        "dim": heads * head_dim,
        "intermediate_dim": draw(st.integers(1, 32)),
        "normalize_first": draw(st.booleans()),
        "norm": draw(st.sampled_from(["layer", "rms"])),
        "activation": draw(st.sampled_from(["relu", "gelu"])),
        "use_bias": draw(st.booleans()),
        "norm_epsilon": draw(st.sampled_from([1e-6, 1e-5, 1e-3, 0.1])),
        "batch": draw(st.integers(1, 3)),
        "seq": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def randomise(layer, rng):
    for weight in layer.weights:
        noise = rng.normal(size=weight.shape)
        if len(weight.shape) == 2:
            weight.assign(noise / np.sqrt(weight.shape[0]))
        elif weight.name in ("gamma", "scale"):
            weight.assign(1 + 0.1 * noise)
        else:
            weight.assign(0.1 * noise)


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x), "float64")


def projection(dense, name, columns=slice(None)):
    found = {f"{name}_kernel": numpy(dense.kernel)[:, columns]}
    if dense.use_bias:
        found[f"{name}_bias"] = numpy(dense.bias)[columns]
    return found


def attention_weights(attention, dim):
    size = dim // attention.num_heads
    ends = np.cumsum(
        [0, dim, *[attention.num_key_value_heads * size] * 2]
    ).tolist()
    fused = attention.query_key_value
    return {
        **projection(fused, "query", slice(ends[0], ends[1])),
        **projection(fused, "key", slice(ends[1], ends[2])),
        **projection(fused, "value", slice(ends[2], ends[3])),
        **projection(attention.output_projection, "output"),
    }


def block_weights(block, dim):
    def norm_weights(norm):
        if isinstance(norm, keras.layers.RMSNormalization):
            return {"gamma": numpy(norm.scale)}
        return {"gamma": numpy(norm.gamma), "beta": numpy(norm.beta)}

    return {
        "attention": attention_weights(block.attention, dim),
        "feed_forward": {
            **projection(block.feed_forward.intermediate, "intermediate"),
            **projection(block.feed_forward.output_projection, "output"),
        },
        "attention_norm": norm_weights(block.attention_norm),
        "feed_forward_norm": norm_weights(block.feed_forward_norm),
    }


def near(actual, expected):
    scale = max(1.0, np.sqrt(np.mean(np.square(expected))))
    np.testing.assert_allclose(
        numpy(actual), expected, rtol=0, atol=FLOAT32 * scale
    )


def drawn_mask(rng, batch, seq):
    """Which keys each query may see: always itself, and whom chance picks."""
    mask = rng.random((batch, seq, seq)) < 0.6
    mask[:, np.arange(seq), np.arange(seq)] = True
    return mask


@property_test
@given(cases())
def test_block(case):
    rng = np.random.default_rng(case.pop("seed"))
    dim, batch, seq = (case.pop(name) for name in ("dim", "batch", "seq"))
    block = kp.TransformerEncoderBlock(dropout=0.0, **case)
    block.build((None, None, dim))
    randomise(block, rng)
    x = rng.normal(size=(batch, seq, dim)).astype("float32")
    mask = drawn_mask(rng, batch, seq)
    expected = ref.encoder_block(
        x,
        block_weights(block, dim),
        case["num_heads"],
        case["normalize_first"],
        epsilon=case["norm_epsilon"],
        activation=case["activation"],
        num_key_value_heads=case["num_key_value_heads"],
        mask=mask,
    )
    near(block(x, attention_mask=mask), expected)


@property_test
@given(cases())
def test_attention_and_its_masks(case):
    """All the masks at once are one mask: the conjunction of them all."""
    rng = np.random.default_rng(case["seed"])
    dim, batch, seq = case["dim"], case["batch"], case["seq"]
    attention = kp.SelfAttention(
        case["num_heads"],
        num_key_value_heads=case["num_key_value_heads"],
        use_bias=case["use_bias"],
    )
    attention.build((None, None, dim))
    randomise(attention, rng)
    x = rng.normal(size=(batch, seq, dim)).astype("float32")
    given_masks = {
        "mask": rng.random((batch, seq)) < 0.8,
        "padding_mask": rng.random((batch, seq)) < 0.8,
        "attention_mask": drawn_mask(rng, batch, seq),
        "segment_ids": np.sort(rng.integers(0, 3, (batch, seq))),
        "use_causal_mask": bool(rng.integers(2)),
    }
    chosen = {
        name: value for name, value in given_masks.items() if rng.random() < 0.6
    }
    tokens = np.ones((batch, seq), bool)
    for name in ("mask", "padding_mask"):
        if name in chosen:
            tokens &= chosen[name]
    allowed = np.repeat(tokens[:, np.newaxis, :], seq, axis=1)
    if "attention_mask" in chosen:
        allowed &= chosen["attention_mask"]
    if "segment_ids" in chosen:
        ids = chosen["segment_ids"]
        allowed &= ids[:, :, np.newaxis] == ids[:, np.newaxis, :]
    if chosen.get("use_causal_mask"):
        allowed &= np.tril(np.ones((seq, seq), bool))
    expected = ref.multi_head_attention(
        np.where(tokens[..., np.newaxis], x, 0),  # as padding counts
        attention_weights(attention, dim),
        case["num_heads"],
        case["num_key_value_heads"],
        allowed,
    )
    near(attention(x, **chosen), expected)
    outputs, _ = attention(x, return_attention_scores=True, **chosen)
    near(outputs, expected)


@property_test
@given(cases(), st.sampled_from(["relu", "gelu"]))
def test_feed_forward(case, activation):
    rng = np.random.default_rng(case["seed"])
    layer = kp.FeedForward(
        case["intermediate_dim"],
        activation=activation,
        use_bias=case["use_bias"],
    )
    layer.build((None, None, case["dim"]))
    randomise(layer, rng)
    x = rng.normal(size=(case["batch"], case["seq"], case["dim"]))
    weights = {
        **projection(layer.intermediate, "intermediate"),
        **projection(layer.output_projection, "output"),
    }
    x = x.astype("float32")
    near(layer(x), ref.feed_forward(x, weights, activation))


@property_test
@given(cases())
def test_pooling(case):
    rng = np.random.default_rng(case["seed"])
    x = rng.normal(size=(case["batch"], case["seq"], case["dim"]))
    x = x.astype("float32")
    pooling = kp.MaskedAveragePooling1D()
    mask = rng.random(x.shape[:2]) < 0.5
    near(pooling(x, mask=mask), ref.masked_average(x, mask))
    near(pooling(x), x.astype("float64").mean(axis=1))


@pytest.mark.parametrize("normalize_first", [False, True])
def test_stack_is_its_blocks(normalize_first):
    rng = np.random.default_rng(0)
    encoder = kp.TransformerEncoder(
        3,
        num_heads=4,
        intermediate_dim=16,
        dropout=0.0,
        normalize_first=normalize_first,
    )
    encoder.build((None, None, 8))
    randomise(encoder, rng)
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    expected = x
    for block in encoder.blocks:
        expected = ref.encoder_block(
            expected,
            block_weights(block, 8),
            4,
            normalize_first,
            epsilon=1e-5,
        )
    if normalize_first:
        expected = ref.layer_norm(
            expected,
            numpy(encoder.final_norm.gamma),
            numpy(encoder.final_norm.beta),
            1e-5,
        )
    else:
        assert encoder.final_norm is None
    near(encoder(x), expected)
