"""Masks, segments and attention weights."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests.layers import numpy, randomised

BATCH, SEQ, DIM, HEADS = 3, 6, 8, 4
# Sums of 8 products and of 6 weighted values, twice projected, of values of
# size 1: 32 roundings, four standard deviations.
FLOAT32 = 4 * np.sqrt(32 * 8) * 2**-24

property_test = settings(max_examples=8)
seeds = st.integers(0, 2**32 - 1)


def near(actual, expected, tolerance=FLOAT32):
    np.testing.assert_allclose(
        numpy(actual), numpy(expected), rtol=0, atol=tolerance
    )


def inputs(seed=0, batch=BATCH, seq=SEQ):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(batch, seq, DIM)).astype("float32")


@pytest.fixture(scope="module")
def attention():
    initializer = keras.initializers.GlorotNormal(seed=5)
    layer = kp.SelfAttention(
        HEADS,
        attention=kp.Attention(num_key_value_heads=2),
        kernel_initializer=initializer,
    )
    layer.build((None, None, DIM))
    return layer


@pytest.fixture(scope="module")
def encoder():
    layer = kp.TransformerEncoder(
        2,
        num_heads=HEADS,
        intermediate_dim=16,
        dropout=0.0,
        kernel_initializer=keras.initializers.GlorotNormal(seed=5),
    )
    layer.build((None, None, DIM))
    return layer


@pytest.fixture(scope="module")
def rotary():
    """One block with positions, which segments count anew."""
    layer = kp.TransformerEncoder(
        1,
        num_heads=HEADS,
        intermediate_dim=16,
        dropout=0.0,
        attention=kp.RotaryEmbedding(),
        kernel_initializer=keras.initializers.GlorotNormal(seed=5),
    )
    layer.build((None, None, DIM))
    return layer


# ---- Attention weights


def test_encoder_gives_the_weights_of_each_block(encoder):
    symbolic = keras.Input((SEQ, DIM))
    outputs, weights = encoder(symbolic, return_attention_scores=True)
    assert isinstance(weights, list)
    assert [w.shape for w in weights] == [(None, HEADS, SEQ, SEQ)] * 2
    model = keras.Model(symbolic, [outputs, *weights])
    x = inputs()
    outputs, *weights = model(x)
    near(outputs, encoder(x))
    hidden = x
    for block, expected in zip(encoder.blocks, weights, strict=True):
        hidden, actual = block(hidden, return_attention_scores=True)
        assert not np.allclose(numpy(actual), 1 / SEQ)
        near(actual, expected)


# ---- Masks


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
@pytest.mark.parametrize("causal", [False, True])
def test_all_masks_together_are_one(attention, dtype, causal):
    x, rng = inputs(), np.random.default_rng(2)
    square = rng.random((BATCH, SEQ, SEQ)) < 0.8
    mask, padding_mask = rng.random((2, BATCH, SEQ)) < 0.8
    segment_ids = np.sort(rng.integers(0, 3, (BATCH, SEQ)))
    real = mask & padding_mask
    allowed = square & real[:, np.newaxis]
    allowed &= segment_ids[:, np.newaxis] == segment_ids[..., np.newaxis]
    if causal:
        allowed = np.tril(allowed)
    assert not allowed.any(axis=-1).all()  # who may see nothing sees all
    hidden = np.where(real[..., np.newaxis], x, 0)  # as padding counts
    expected = attention(hidden, attention_mask=allowed)
    masks = {"mask": mask, "padding_mask": padding_mask}
    masks["attention_mask"] = square
    call = {name: each.astype(dtype) for name, each in masks.items()}
    call |= {"segment_ids": segment_ids, "use_causal_mask": causal}
    near(attention(x, **call), expected)
    near(attention(x, return_attention_scores=True, **call)[0], expected)


@property_test
@given(seeds, st.integers(1, 4))
def test_packed_segments_are_separate_rows(rotary, seed, count):
    """One packed row gives what its segments give, each a row of its own."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, count)
    segment_ids = np.repeat(rng.permutation(9)[:count], lengths)[np.newaxis]
    x = inputs(seed, batch=1, seq=int(lengths.sum()))
    ends = np.cumsum(lengths).tolist()
    packed = numpy(rotary(x, segment_ids=segment_ids))
    for start, end in zip([0, *ends], ends, strict=False):
        near(rotary(x[:, start:end]), packed[:, start:end])


# ---- Sizes at the edge


@pytest.mark.parametrize("window", [1, 2, SEQ])
def test_a_window_is_a_mask_of_near_tokens(window):
    layer = kp.SelfAttention(HEADS, attention=kp.Attention(window=window))
    x, mask = inputs(), np.arange(SEQ) < np.array([[SEQ], [4], [1]])
    found = layer(x, mask=mask)
    layer.attention = kp.Attention()
    apart = np.abs(np.arange(SEQ)[:, None] - np.arange(SEQ))
    near_by = np.broadcast_to(apart <= window, (BATCH, SEQ, SEQ))
    near(found, layer(x, mask=mask, attention_mask=near_by))


def test_a_shared_block_is_kept_once(tmp_path):
    encoder = kp.TransformerEncoder(
        3, num_heads=2, intermediate_dim=16, share_blocks=True
    )
    model = keras.Sequential([keras.Input((None, DIM)), encoder])
    one = kp.TransformerEncoderBlock(2, intermediate_dim=16)
    one.build((None, None, DIM))
    assert model.count_params() == one.count_params()
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    near(loaded(inputs()), model(inputs()), 0)
    x = inputs()
    for _ in range(3):
        x = encoder.blocks[0](x)
    near(model(inputs()), x)


@pytest.mark.parametrize("kind", [kp.SelfAttention, kp.CrossAttention])
def test_norm_of_all_heads(kind):
    layer = kind(
        HEADS,
        attention=kp.Attention(query_key_norm="all"),
        norm_epsilon=1e-3,
        use_bias=False,
    )
    x = inputs()
    call = {"memory": x} if kind is kp.CrossAttention else {}
    _, found = layer(x, return_attention_scores=True, **call)
    kernels = [
        numpy(each.kernel)
        for each in (
            [layer.query, layer.key_value] if call else [layer.query_key_value]
        )
    ]
    projected = x @ np.concatenate(kernels, axis=1)[:, : 2 * DIM]
    heads = []
    for part in np.split(projected, 2, axis=-1):
        part /= np.sqrt(np.mean(part**2, axis=-1, keepdims=True) + 1e-3)
        heads.append(part.reshape(BATCH, SEQ, HEADS, -1).transpose(0, 2, 1, 3))
    scores = heads[0] @ heads[1].swapaxes(2, 3) / np.sqrt(DIM / HEADS)
    near(found, ops.softmax(scores), 2e-6)


# ---- Queries and keys that are not the same, and long windows


def test_reading_itself_is_self_attention():
    """With heads of their own width, norms of them, and biases of some."""
    options = {
        "attention": kp.Attention(
            kp.RotaryEmbedding(),
            num_key_value_heads=2,
            head_dim=6,
            query_key_norm=True,
            use_bias=True,
        ),
        "use_bias": False,
    }
    one = kp.SelfAttention(HEADS, **options)
    one.build((None, None, 16))
    randomised(one)
    other = kp.CrossAttention(HEADS, **options)
    other.build((None, None, 16))
    for name in "query_norm", "key_norm":
        getattr(other, name).set_weights(getattr(one, name).get_weights())
    kernel, bias = one.query_key_value.get_weights()
    queries = HEADS * 6
    other.query.set_weights([kernel[:, :queries], bias[:queries]])
    other.key_value.set_weights([kernel[:, queries:], bias[queries:]])
    other.output_projection.set_weights(one.output_projection.get_weights())
    assert len(other.output_projection.weights) == 1  # without a bias
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 11, 16)).astype("float32")
    tokens = np.ones((2, 11), bool)
    tokens[0, 8:] = tokens[1, :2] = False
    x = np.where(tokens[..., np.newaxis], x, 0)
    got = other(x, memory=x, memory_mask=tokens)
    near(got, one(x, padding_mask=tokens), 1e-5)


def test_windows_of_a_long_text_outside_graphs():
    """In blocks; a mask of the same windows attends all at once."""
    layer = kp.SelfAttention(1, attention=kp.Attention(window=2))
    plain = kp.SelfAttention(1)
    x = np.random.default_rng(0).normal(size=(1, 600, 2)).astype("float32")
    for each in layer, plain:
        each.build(x.shape)
    plain.set_weights(layer.get_weights())
    places = np.arange(600)
    mask = np.abs(places[:, np.newaxis] - places) <= 2
    near(layer(x), plain(x, attention_mask=mask[np.newaxis]), 1e-5)


@pytest.mark.tensorflow
def test_litert_files_of_tensorflow_alone():
    """TensorFlow's converter inlines what two blocks call at any length."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    x = keras.Input((None, DIM))
    y = x
    for kind in ("rotary", "alibi"):
        y = kp.SelfAttention(2, attention=kind)(y)
    model = keras.Model(x, y)
    content = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    run = Interpreter(model_content=content).get_signature_runner()
    given = np.random.default_rng(0).normal(size=(2, 5, DIM)).astype("float32")
    (found,) = run(**{x.name: given}).values()
    wanted = keras.ops.convert_to_numpy(model(given))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
