"""Encoders, decoders and the whole Transformer against the NumPy oracle."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference as ref
from tests.layers import randomised

# A float32 answer is off by its roundings, which are independent: four
# standard deviations of their sum. A block has 26 (see the layer contract),
# each of a sum of up to 32 products, and 4 more where a norm, dividing by a
# small deviation, makes what came before it larger.
FLOAT32 = 4 * np.sqrt(30 * 32) * 2**-24
# What is promised of decoders: four standard deviations of the 40 roundings of
# a block, each of a sum of up to 32 products, are 9e-6; of float64, 2e-14 for a
# block, and a model has five, and norms that make what came before them larger.
DECODER = 1e-5
FLOAT64 = 1e-12

# JAX compiles each operation for each shape; eight have every option once.
property_test = settings(
    max_examples=8 if keras.backend.backend() == "jax" else 15
)


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x), "float64")


def projection(dense, ends, *names):
    """The weights of one layer that projects to several things side by side."""
    found = {}
    for kind in ("kernel", "bias")[: 1 + dense.use_bias]:
        parts = np.split(numpy(getattr(dense, kind)), ends, axis=-1)
        for name, values in zip(names, parts, strict=True):
            found[f"{name}_{kind}"] = values
    return found


def attention_weights(attention, dim):
    shared = attention.num_key_value_heads * dim // attention.num_heads
    return {
        **projection(
            attention.query_key_value,
            [dim, dim + shared],
            "query",
            "key",
            "value",
        ),
        **projection(attention.output_projection, [], "output"),
    }


def feed_forward_weights(layer):
    weights = {
        **projection(layer.intermediate, [], "intermediate"),
        **projection(layer.output_projection, [], "output"),
    }
    if layer.gate is not None:
        weights |= projection(layer.gate, [], "gate")
    return weights


def block_weights(block, dim):
    weights = {
        "attention": attention_weights(block.attention, dim),
        "feed_forward": feed_forward_weights(block.feed_forward),
        "attention_norm": norm_weights(block.attention_norm),
        "feed_forward_norm": norm_weights(block.feed_forward_norm),
    }
    cross = getattr(block, "cross_attention", None)
    if cross is not None:
        shared = cross.num_key_value_heads * dim // cross.num_heads
        weights["cross_attention"] = {
            **projection(cross.query, [], "query"),
            **projection(cross.key_value, [shared], "key", "value"),
            **projection(cross.output_projection, [], "output"),
        }
        weights["cross_attention_norm"] = norm_weights(
            block.cross_attention_norm
        )
    return weights


def norm_weights(norm):
    if isinstance(norm, keras.layers.RMSNormalization):
        return {"gamma": numpy(norm.scale)}
    return {"gamma": numpy(norm.gamma), "beta": numpy(norm.beta)}


def near(actual, expected, tolerance=FLOAT32):
    scale = max(1.0, np.sqrt(np.mean(np.square(expected))))
    np.testing.assert_allclose(
        numpy(actual), expected, rtol=0, atol=tolerance * scale
    )


@st.composite
def cases(draw):
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    least = -(-8 // heads)
    return {
        "num_heads": heads,
        "attention": kp.Attention(num_key_value_heads=kv_heads),
        "dim": heads * draw(st.integers(least, max(4, least))),
        "intermediate_dim": draw(st.integers(1, 32)),
        "norm": kp.Norm(
            draw(st.sampled_from(["layer", "rms"])),
            at=draw(st.sampled_from(["after", "before"])),
            epsilon=draw(st.sampled_from([1e-6, 1e-5, 1e-3, 0.1])),
        ),
        "use_bias": draw(st.booleans()),
        "cross_attention": "same" if draw(st.booleans()) else None,
        "use_gate": draw(st.booleans()),
        "activation": draw(st.sampled_from(["relu", "gelu", "silu"])),
        "batch": draw(st.integers(1, 3)),
        "seq": draw(st.integers(1, 9)),
        "source": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


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
    del case["source"], case["cross_attention"]
    block = kp.TransformerEncoderBlock(dropout=0.0, **case)
    block.build((None, None, dim))
    randomised(block, rng)
    x = rng.normal(size=(batch, seq, dim)).astype("float32")
    mask = drawn_mask(rng, batch, seq)
    expected = ref.encoder_block(
        x,
        block_weights(block, dim),
        case["num_heads"],
        case["norm"].at,
        epsilon=case["norm"].epsilon,
        activation=case["activation"],
        num_key_value_heads=case["attention"].num_key_value_heads,
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
        attention=case["attention"],
        use_bias=case["use_bias"],
    )
    attention.build((None, None, dim))
    randomised(attention, rng)
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
        case["attention"].num_key_value_heads,
        allowed,
    )
    near(attention(x, **chosen), expected)
    outputs, _ = attention(x, return_attention_scores=True, **chosen)
    near(outputs, expected)


@property_test
@given(cases())
def test_feed_forward(case):
    rng = np.random.default_rng(case["seed"])
    layer = kp.FeedForward(
        case["intermediate_dim"],
        activation=case["activation"],
        use_gate=case["use_gate"],
        use_bias=case["use_bias"],
    )
    layer.build((None, None, case["dim"]))
    randomised(layer, rng)
    x = rng.normal(size=(case["batch"], case["seq"], case["dim"]))
    x = x.astype("float32")
    near(
        layer(x),
        ref.feed_forward(x, feed_forward_weights(layer), case["activation"]),
    )


@property_test
@given(cases())
def test_pooling(case):
    rng = np.random.default_rng(case["seed"])
    x = rng.normal(size=(case["batch"], case["seq"], case["dim"]))
    x = x.astype("float32")
    pooling = kp.Pooling1D("mean")
    mask = rng.random(x.shape[:2]) < 0.5
    near(pooling(x, mask=mask), ref.masked_average(x, mask))
    near(pooling(x), x.astype("float64").mean(axis=1))


@property_test
@given(cases())
def test_decoder_block(case):
    rng = np.random.default_rng(case.pop("seed"))
    dim, batch, seq, source = (
        case.pop(name) for name in ("dim", "batch", "seq", "source")
    )
    block = kp.TransformerDecoderBlock(dropout=0.0, **case)
    block.build((None, None, dim))
    randomised(block, rng)
    x = rng.normal(size=(batch, seq, dim)).astype("float32")
    mask = drawn_mask(rng, batch, seq)
    memory, given = None, {}
    if case["cross_attention"]:
        memory = rng.normal(size=(batch, source, dim)).astype("float32")
        allowed = rng.random((batch, seq, source)) < 0.6
        allowed[:, :, 0] = True
        given = {"memory": memory, "memory_attention_mask": allowed}
    expected = ref.decoder_block(
        x,
        block_weights(block, dim),
        case["num_heads"],
        case["norm"].at,
        epsilon=case["norm"].epsilon,
        memory=memory,
        activation=case["activation"],
        num_key_value_heads=case["attention"].num_key_value_heads,
        mask=mask,
        memory_mask=given.get("memory_attention_mask"),
    )
    near(block(x, attention_mask=mask, **given), expected, DECODER)


def transformer_weights(model):
    weights = {
        "source_embeddings": numpy(model.embedding.embeddings),
        "target_embeddings": numpy(model.target_embedding.embeddings),
        "encoder": [
            block_weights(block, model.d_model)
            for block in model.encoder.blocks
        ],
        "decoder": [
            block_weights(block, model.d_model)
            for block in model.decoder.blocks
        ],
    }
    if model.norm.at == "before":
        weights["encoder_norm"] = norm_weights(model.encoder.final_norm)
        weights["decoder_norm"] = norm_weights(model.decoder.final_norm)
    weights["logits_kernel"] = (
        weights["target_embeddings"].T
        if model.head is None
        else numpy(model.head.kernel)
    )
    return weights


MODELS = {
    "the-paper": {},
    "pre-rms-grouped-tied": {
        "norm": kp.Norm("rms", at="before"),
        "attention": kp.Attention(num_key_value_heads=2),
        "embeddings": "tied",
        "target_vocabulary_size": 31,
    },
    # Not gelu: TensorFlow's rounds a constant of it to float32.
    "swiglu-separate": {
        "activation": "silu",
        "use_gate": True,
        "embeddings": "separate",
        "num_decoder_layers": 3,
    },
}
WIDE = pytest.param(
    "float64", FLOAT64, marks=pytest.mark.tensorflow, id="float64"
)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", DECODER), WIDE], ids=str
)
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_transformer(options, dtype, tolerance):
    """From ids to logits, all the padding of both sides in between."""
    rng = np.random.default_rng(0)
    sizes = {"d_model": 16, "num_layers": 2, "num_heads": 4}
    sizes["intermediate_dim"] = 32
    model = kp.Transformer(40, **{**sizes, **options}, dtype=dtype)
    randomised(model, rng)
    source, target = (
        rng.integers(0, 2, (3, length)) * rng.integers(1, 30, (3, length))
        for length in (7, 9)
    )
    source[:, 0], target[:, 0] = 3, 4
    logits = model({"source": source, "target": target})
    assert keras.backend.standardize_dtype(logits.dtype) == dtype
    seen = {"source": [], "target": [], "cross": []}
    expected = ref.transformer(
        source,
        target,
        transformer_weights(model),
        4,
        model.norm.at,
        epsilon=1e-5,
        activation=options.get("activation", "relu"),
        num_key_value_heads=model.attention.num_key_value_heads or 4,
        seen=seen,
    )
    real = target != 0
    near(ops.convert_to_tensor(logits)[real], expected[real], tolerance)
    weights = model.attention_weights(source, target)
    assert {k: len(v) for k, v in weights.items()} == {
        "source": model.num_layers,
        "target": model.num_decoder_layers,
        "cross": model.num_decoder_layers,
    }
    for kind, blocks in seen.items():
        rows = source != 0 if kind == "source" else real
        for actual, wanted in zip(weights[kind], blocks, strict=True):
            # (batch, heads, query, key) -> (batch, query, heads, key)
            pair = (numpy(actual), wanted)
            near(*(np.swapaxes(x, 1, 2)[rows] for x in pair), tolerance)
