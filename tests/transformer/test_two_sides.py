"""What follows the projections, where queries and keys are not the same.

The oracle is self-attention over the whole sequence, which other files hold to
the papers: a few of its tokens, as queries with a side of their own, get what
they got among all.
"""

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from keras_posenc.ops import attention
from keras_posenc.ops.sides import Side
from keras_posenc.transformer._attending import attend_between, rotated
from keras_posenc.transformer._context import Context
from tests.layers import randomised

BATCH, SEQ, DIM, HEADS = 2, 11, 16, 4
ROWS = np.array([3, 4, 9], "int32")
POSITIONS = {
    "none": lambda: None,
    "rotary": kp.RotaryEmbedding,
    "alibi": kp.AlibiBias,
    "relative": lambda: kp.positions.RelativePositionEmbedding(
        3
    ),  # values as well
    "transformer-xl": kp.positions.TransformerXLBias,
}


def made(position):
    keras.utils.set_random_seed(5)
    layer = kp.SelfAttention(
        HEADS, num_key_value_heads=2, attention_position=POSITIONS[position]()
    )
    layer.build((None, None, DIM))
    return layer


def given():
    """Inputs, and of each token whether it is real, its segment and place."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, SEQ, DIM)).astype("float32")
    tokens = np.ones((BATCH, SEQ), bool)
    tokens[0, 8:] = tokens[1, :2] = False
    segments = np.array([[1] * 5 + [2] * 6, [1] * SEQ], "int32")
    places = rng.integers(-50, 50, (BATCH, SEQ)).astype("int32")
    return np.where(tokens[..., np.newaxis], x, 0), tokens, segments, places


def of_some(layer, **options):
    """What the queries at ROWS get from all keys, by sides of their own."""
    x, tokens, segments, places = map(ops.convert_to_tensor, given())
    places = ops.where(tokens, places, ops.zeros_like(places))
    keys = Side(SEQ, tokens, places, segments)
    queries = Side(
        len(ROWS),
        positions=ops.take(places, ROWS, axis=1),
        segment_ids=ops.take(segments, ROWS, axis=1),
        index=ops.convert_to_tensor(ROWS),
    )
    everything = Context(keys, keys, batch=BATCH)
    query, key, value = layer._project(x, everything)
    query = ops.take(query, ROWS, axis=2)
    position = layer.attention_position
    return attend_between(
        layer,
        rotated(position, query, queries),
        rotated(position, key, keys),
        value,
        Context(queries, keys, batch=BATCH, causal=True),
        training=None,
        **options,
    )


def of_all(layer, **options):
    x, tokens, segments, places = given()
    return layer(
        x,
        mask=tokens,
        positions=places,
        segment_ids=segments,
        use_causal_mask=True,
        **options,
    )


def near(got, want):
    # Both round alike but for the order of sums of 11 products of up to 3.
    np.testing.assert_allclose(
        *(ops.convert_to_numpy(x) for x in (got, want)), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("position", POSITIONS)
def test_some_tokens_get_what_they_got_among_all(position):
    layer = made(position)
    want = ops.take(of_all(layer), ROWS, axis=1)
    near(of_some(layer, return_attention_scores=False), want)
    outputs, weights = of_some(layer, return_attention_scores=True)
    near(outputs, want)
    _, every = of_all(layer, return_attention_scores=True)
    near(weights, ops.take(every, ROWS, axis=2))


@pytest.mark.tensorflow
@pytest.mark.parametrize("position", POSITIONS)
def test_blocks_of_queries_among_more_keys(position, monkeypatch):
    """Where the scores would be large, by the number of keys."""
    layer = made(position)
    want = of_some(layer, return_attention_scores=False)
    monkeypatch.setattr(attention, "BLOCK", 2)
    blocks = []
    take = Side.some
    monkeypatch.setattr(
        Side, "some", lambda *args: blocks.append(1) or take(*args)
    )
    scores = BATCH * HEADS * len(ROWS) * SEQ
    monkeypatch.setattr(attention, "MAX_SCORES", scores)
    near(of_some(layer, return_attention_scores=False), want)
    assert not blocks
    monkeypatch.setattr(attention, "MAX_SCORES", scores - SEQ)
    near(of_some(layer, return_attention_scores=False), want)
    assert blocks


def test_reading_itself_is_self_attention():
    """With heads of their own width, norms of them, and biases of some."""
    options = {
        "num_key_value_heads": 2,
        "head_dim": 6,
        "query_key_norm": True,
        "query_key_value_bias": True,
        "use_bias": False,
        "attention_position": kp.RotaryEmbedding(),
    }
    one = kp.SelfAttention(HEADS, **options)
    one.build((None, None, DIM))
    randomised(one)
    other = kp.CrossAttention(HEADS, **options)
    other.build((None, None, DIM))
    for name in "query_norm", "key_norm":
        getattr(other, name).set_weights(getattr(one, name).get_weights())
    kernel, bias = one.query_key_value.get_weights()
    queries = HEADS * 6
    other.query.set_weights([kernel[:, :queries], bias[:queries]])
    other.key_value.set_weights([kernel[:, queries:], bias[queries:]])
    other.output_projection.set_weights(one.output_projection.get_weights())
    assert len(other.output_projection.weights) == 1  # without a bias
    x, tokens, _, _ = given()
    near(other(x, memory=x, memory_mask=tokens), one(x, padding_mask=tokens))


def test_windows_of_a_long_text_outside_graphs():
    """In blocks; a mask of the same windows attends all at once."""
    layer = kp.SelfAttention(1, attention_window=2)
    plain = kp.SelfAttention(1)
    x = np.random.default_rng(0).normal(size=(1, 600, 2)).astype("float32")
    for each in layer, plain:
        each.build(x.shape)
    plain.set_weights(layer.get_weights())
    places = np.arange(600)
    mask = np.abs(places[:, np.newaxis] - places) <= 2
    near(layer(x), plain(x, attention_mask=mask[np.newaxis]))
