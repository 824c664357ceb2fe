"""The decoder and the whole Transformer against the NumPy oracle."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference as ref

property_test = settings(deadline=None, max_examples=25, derandomize=True)
# What is promised: four standard deviations of the 40 roundings of a block,
# each of a sum of up to 32 products, are 9e-6; of float64, 2e-14 for a block,
# and a model has five, and norms that make what came before them larger.
FLOAT32 = 1e-5
FLOAT64 = 1e-12


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


def projection(dense, ends, *names):
    """The weights of one layer that projects to several things side by side."""
    found = {}
    for kind in ("kernel", "bias")[: 1 + dense.use_bias]:
        parts = np.split(numpy(getattr(dense, kind)), ends, axis=-1)
        for name, values in zip(names, parts, strict=True):
            found[f"{name}_{kind}"] = values
    return found


def block_weights(block, dim):
    attention, feed_forward = block.attention, block.feed_forward
    shared = attention.num_key_value_heads * dim // attention.num_heads
    weights = {
        "attention": {
            **projection(
                attention.query_key_value,
                [dim, dim + shared],
                "query",
                "key",
                "value",
            ),
            **projection(attention.output_projection, [], "output"),
        },
        "feed_forward": {
            **projection(feed_forward.intermediate, [], "intermediate"),
            **projection(feed_forward.output_projection, [], "output"),
        },
        "attention_norm": norm_weights(block.attention_norm),
        "feed_forward_norm": norm_weights(block.feed_forward_norm),
    }
    if feed_forward.gate is not None:
        weights["feed_forward"] |= projection(feed_forward.gate, [], "gate")
    cross = getattr(block, "cross_attention", None)
    if cross is not None:
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
        "num_key_value_heads": kv_heads,
        "dim": heads * draw(st.integers(least, max(4, least))),
        "intermediate_dim": draw(st.integers(1, 32)),
        "normalize_first": draw(st.booleans()),
        "norm": draw(st.sampled_from(["layer", "rms"])),
        "use_bias": draw(st.booleans()),
        "norm_epsilon": draw(st.sampled_from([1e-6, 1e-5, 1e-3, 0.1])),
        "use_cross_attention": draw(st.booleans()),
        "use_gate": draw(st.booleans()),
        "activation": draw(st.sampled_from(["relu", "gelu", "silu"])),
        "batch": draw(st.integers(1, 3)),
        "seq": draw(st.integers(1, 9)),
        "source": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


@property_test
@given(cases())
def test_block(case):
    rng = np.random.default_rng(case.pop("seed"))
    dim, batch, seq, source = (
        case.pop(name) for name in ("dim", "batch", "seq", "source")
    )
    block = kp.TransformerDecoderBlock(dropout=0.0, **case)
    block.build((None, None, dim))
    randomise(block, rng)
    x = rng.normal(size=(batch, seq, dim)).astype("float32")
    mask = rng.random((batch, seq, seq)) < 0.6
    mask[:, np.arange(seq), np.arange(seq)] = True
    memory, given = None, {}
    if case["use_cross_attention"]:
        memory = rng.normal(size=(batch, source, dim)).astype("float32")
        allowed = rng.random((batch, seq, source)) < 0.6
        allowed[:, :, 0] = True
        given = {"memory": memory, "memory_attention_mask": allowed}
    expected = ref.decoder_block(
        x,
        block_weights(block, dim),
        case["num_heads"],
        case["normalize_first"],
        epsilon=case["norm_epsilon"],
        memory=memory,
        activation=case["activation"],
        num_key_value_heads=case["num_key_value_heads"],
        mask=mask,
        memory_mask=given.get("memory_attention_mask"),
    )
    near(block(x, attention_mask=mask, **given), expected)


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
    if model.normalize_first:
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
        "normalize_first": True,
        "norm": "rms",
        "num_key_value_heads": 2,
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
    ("dtype", "tolerance"), [("float32", FLOAT32), WIDE], ids=str
)
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_transformer(options, dtype, tolerance):
    """From ids to logits, all the padding of both sides in between."""
    rng = np.random.default_rng(0)
    sizes = {"d_model": 16, "num_layers": 2, "num_heads": 4}
    sizes["intermediate_dim"] = 32
    model = kp.Transformer(40, **{**sizes, **options}, dtype=dtype)
    randomise(model, rng)
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
        model.normalize_first,
        epsilon=1e-5,
        activation=options.get("activation", "relu"),
        num_key_value_heads=model.num_key_value_heads,
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
