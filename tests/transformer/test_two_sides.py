"""Attention whose queries and keys are not the same, and windows of it.

A cache, of whose keys queries are a part, is in `test_cache.py`.
"""

import numpy as np
from keras import ops

import keras_posenc as kp
from tests.layers import randomised

BATCH, SEQ, DIM, HEADS = 2, 11, 16, 4


def near(got, want):
    # Both round alike but for the order of sums of 11 products of up to 3.
    np.testing.assert_allclose(
        *(ops.convert_to_numpy(x) for x in (got, want)), rtol=0, atol=1e-5
    )


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
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, SEQ, DIM)).astype("float32")
    tokens = np.ones((BATCH, SEQ), bool)
    tokens[0, 8:] = tokens[1, :2] = False
    x = np.where(tokens[..., np.newaxis], x, 0)
    near(other(x, memory=x, memory_mask=tokens), one(x, padding_mask=tokens))


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
    near(layer(x), plain(x, attention_mask=mask[np.newaxis]))
