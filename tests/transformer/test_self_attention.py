"""Masks, segments and attention weights."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp

BATCH, SEQ, DIM, HEADS = 3, 6, 8, 4
# Sums of 8 products and of 6 weighted values, twice projected, of values of
# size 1: 32 roundings, four standard deviations.
FLOAT32 = 4 * np.sqrt(32 * 8) * 2**-24

property_test = settings(max_examples=8)
seeds = st.integers(0, 2**32 - 1)


def numpy(x):
    return np.asarray(ops.convert_to_numpy(x))


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


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_masks_of_ones_and_zeros_are_masks(attention, dtype):
    x = inputs()
    mask = np.random.default_rng(2).random((BATCH, SEQ)) < 0.6
    expected = attention(x, mask=mask)
    near(attention(x, mask=mask.astype(dtype)), expected, 0)
    near(attention(x, padding_mask=mask.astype(dtype)), expected, 0)


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
