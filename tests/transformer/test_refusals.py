"""What does not fit is refused with a message that names it.

That each argument of a constructor is checked is in `test_conventions.py`.
"""

import keras
import numpy as np
import pytest

import keras_posenc as kp
from tests.refusals import check, table

DIM, SEQ = 8, 4
SIZES = {"num_heads": 2, "intermediate_dim": 8}


def attention(**kwargs):
    return kp.SelfAttention(**{"num_heads": 2, **kwargs})


def block(**kwargs):
    return kp.TransformerEncoderBlock(**{**SIZES, **kwargs})


def encoder(**kwargs):
    return kp.TransformerEncoder(2, **{**SIZES, **kwargs})


def feed_forward(**kwargs):
    return kp.FeedForward(**{"intermediate_dim": 8, **kwargs})


def pooling():
    return kp.Pooling1D("mean")


def gated(num_layers):
    options = {"cross_attention": None, "layer_input_dim": 3}
    return kp.TransformerDecoder(num_layers, **SIZES, **options)


def model(kind=kp.TransformerEncoderModel, **kwargs):
    return kind(9, **{"d_model": DIM, "num_layers": 2, **SIZES, **kwargs})


def whole(**kwargs):
    return model(kp.Transformer, **kwargs)


def array(*shape, dtype="float32"):
    return np.ones(shape, dtype)


def symbol(*shape, dtype="float32"):
    """What Keras passes instead as it makes a model."""
    return keras.KerasTensor(shape, dtype=dtype)


ATTENDING = (attention, block, encoder)
DYNAMIC = {
    "rope_type": "dynamic",
    "factor": 2,
    "original_max_position_embeddings": 8,
}
SCOPE = {
    **{name: getattr(kp, name) for name in kp.__all__},
    **{each.__name__: each for each in (*ATTENDING, feed_forward, gated)},
    "model": model,
    "whole": whole,
    "SIZES": SIZES,
    "ALIBI": kp.AlibiBias(),
    "FORGETS": kp.positions.ForgettingBias(),
    "DYNAMIC": kp.RotaryEmbedding(scaling=DYNAMIC),
    "READER": kp.TransformerDecoderBlock(**SIZES),
    "ALONE": kp.TransformerDecoderBlock(**SIZES, cross_attention=None),
    "PATCHES": kp.PatchEmbedding(2, d_model=8, name="patches"),
    "MEMORY": array(2, 5, 8),
    "x": array,
}
OPTIONS = """
model(input_position=AlibiBias(name="bias"))
    built=False>. It belongs inside attention: give it as `attention`
model(input_position=RandomizedPositions(64))
    `input_position` must give (batch, seq, dim).
attention(num_heads=4, attention=Attention(num_key_value_heads=3))
    `num_key_value_heads` must divide `num_heads`. Received:
    num_key_value_heads=3, num_heads=4
model(num_heads=4, attention=Attention(num_key_value_heads=3))
    `num_key_value_heads` must divide `num_heads`. Received:
Attention(window=0)
    `window` must be a positive integer. Received: window=0
Attention(num_key_value_heads=1.5)
    `num_key_value_heads` must be a positive integer
Attention(head_dim=-1)
    `head_dim` must be a positive integer
Attention(use_bias=1)
    `use_bias` must be
Attention(query_key_norm="each")
    `query_key_norm` must be True, False or 'all'
feed_forward(intermediate_dim=[8, 8])
    `intermediate_dim` must be a positive integer. Received: intermediate_dim=[
Attention(keys_of=-1)
    `keys_of` must be an integer of at least 0
Attention(keys_of=0, value_norm=True)
    `value_norm` must be False with keys_of=0
Attention(keys_of=0, keys_as_values=True)
    `keys_as_values` must be False with keys_of=0
attention(attention=Attention(keys_of=0))(x(2, 4, 8))
    with keys_of=0 attends to keys of another block: give it to a stack
encoder(attention=[Attention(), Attention(keys_of=1)])
    `keys_of` of block 1 must be the number of an earlier block
encoder(attention=[Attention(), Attention(keys_of=0, head_dim=2)])
    with keys of its own, as many and as wide
encoder(attention=["rotary", Attention(FORGETS, keys_of=0)])
    positions without steps. Received: keys_of=0
TransformerDecoder(2, **SIZES, cross_attention=Attention(value_norm=True))
    `cross_attention` must have no `value_norm`, which is for self-attention
encoder(intermediate_dim=[8])
    `intermediate_dim` as a list must have one entry for each of the 2 blocks
encoder(share_blocks=True, intermediate_dim=[8, 8])
    one `intermediate_dim`, and a `norm`
model(TransformerDecoderModel, logits_cap=0)
    `logits_cap` must be
gated(6)(x(2, 4, 8))
    takes `layer_inputs` of shape (batch, seq, 18). Received: none
gated(2)(x(2, 4, 8), layer_inputs=x(4, 2, 6))
    takes `layer_inputs` of shape (batch, seq, 6). Received: shape (4, 2, 6)
TransformerDecoder(cross_attention=None)(x(2, 4, 8), layer_inputs=x(2, 4, 6))
    cannot be called with `layer_inputs`
Attention("rope")
    `position` must be an AttentionPosition, such as
Norm("batch")
    `kind` must be 'layer' or 'rms'. Received: kind='batch'
Norm(at="behind")
    `at` must be 'after', 'before'
Norm(epsilon=0)
    `epsilon` must be
encoder(norm="batch")
    `norm` must be a keras_posenc.Norm, or one of its kinds or places: 'layer'
encoder(window=3)
    has no argument `window`: give attention=keras_posenc.Attention(window=...)
model(epsilon=1e-3)
    has no argument `epsilon`: give norm=keras_posenc.Norm(epsilon=...)
TransformerDecoder(2, **SIZES, cross_attention=Attention(window=3))
    `cross_attention` must have no window
TransformerDecoder(2, **SIZES, cross_attention=[Attention(), None])
    `cross_attention` as a list must have an attention for each block
TransformerDecoderBlock(2, cross_attention=None, memory_dim=3)
    `memory_dim` needs a `cross_attention`
whole(cross_attention=None)
    `cross_attention` must not be None
model(num_heads=3)
    `num_heads` must divide the width of the
encoder(share_blocks=True, norm="between")
    a `norm` that is not 'between'
encoder(share_blocks=True, attention=["rotary", "alibi"])
    `share_blocks` needs blocks that are alike
attention(attention="rope")
    `attention` must be an AttentionPosition, such as
attention(attention=AlibiBias)
    `attention` must be an AttentionPosition, such as
attention(attention=[ALIBI])
    `attention` must be an AttentionPosition, such as
block(attention=PositionalEncoding())
    put it after the Embedding layer
encoder(attention=[ALIBI, "rope"])
    must be an AttentionPosition, such
encoder(attention=[None] * 3)
    must have one entry for each of the 2 blocks. Received: 3 entries
whole(target_vocabulary_size=8)
    embeddings='shared' is one table
whole(target_vocabulary_size=8, embeddings="shared_inputs")
    'shared_inputs' is one table
whole(embeddings="both")
    `embeddings` must be 'shared'
whole(input_position=PositionalEncoding(scale_inputs=True))
    `input_position` would scale embeddings that the model scales
whole(input_position=PositionalEncoding(merge_mode="concat"))
    outputs 16 wide: give embeddings='separate'
whole(target_input_position=ALIBI)
    `target_attention`
whole(cross_attention=DYNAMIC)
    RotaryEmbedding with rope_type='dynamic' depends on the length
whole(cross_attention=AlibiBias(bidirectional=False))
    AlibiBias with bidirectional=False distinguishes earlier keys
whole(num_decoder_layers=3, attention=[AlibiBias(), None])
    `target_attention` as a list must have one entry for
whole(target_attention="rope")
    `target_attention` must be an AttentionPosition, such
VisionTransformerModel(image_size=(4, 4, 4), patch_size=2)
    `image_size` must be
TransformerDecoderBlock(2, cross_attention=3)
    `cross_attention` must be
READER(x(2, 3, 8))
    attends to a memory: call it with `memory`
ALONE(x(2, 3, 8), memory=MEMORY)
    cross_attention=None, and cannot
ALONE(x(2, 3, 8), memory_mask=x(2, 4, dtype="bool"))
    needs a `memory`
READER(x(2, 3, 8), memory=MEMORY[:, :, :4])
    expects `memory` of shape
READER(x(2, 3, 8), memory=MEMORY[:1])
    expects `memory` of shape
READER(x(2, 3, 8), memory=MEMORY, memory_mask=x(2, 4, dtype="bool"))
    `memory_mask` must have shape
READER(x(2, 3, 8), memory=MEMORY, memory_segment_ids=x(2, 5, dtype="int32"))
    `memory_segment_ids` needs the `segment_ids`
PATCHES.build((2, 4, 4))
    PatchEmbedding 'patches'
PATCHES.build((2, None, 4, 3))
    PatchEmbedding 'patches'
PATCHES.build((2, 5, 4, 3))
    PatchEmbedding 'patches'
PATCHES.build((2, 4, 3, 3))
    PatchEmbedding 'patches'
"""


@pytest.mark.parametrize(("call", "said"), table(OPTIONS))
def test_options(call, said):
    check(call, said, SCOPE)


# Of each layer that `make` makes; one of them is built.
INPUTS = """
make()(x(2, 3))
    expects inputs of shape (batch, seq, dim), with dim known and above 0.
    Received: inputs of shape (2, 3)
make()(x(2, 3, 4, 8))
    with dim known and above 0. Received: inputs of shape (2, 3, 4, 8)
make()(x(2, 3, 0))
    with dim known and above 0. Received: inputs of shape (2, 3, 0)
make()(x(2, 4, 8, dtype="int32"))
    inputs of a float dtype, su
built(x(2, 3))
    expects inputs of shape (batch, seq, dim), with dim known and above 0.
built(x(2, 4, 8, dtype="int32"))
    inputs of a float dtype, su
built(x(2, 4, 16))
    'a_name' was built for inputs of width 8. Received: inputs of shape (2, 4,
    16)
"""
POOLED = """
make()(x(2, 3))
    expects inputs of shape (batch, seq, dim)
make()(x(2, 3, 0))
    with dim known and above 0
make()(x(2, 3, 4, dtype="int32"))
    inputs of a float dtype
make()(x(2, 3, 4), mask=x(2, 4, dtype="bool"))
    `mask` must have shape (batch, seq), with batch=2, seq=3. Received: mask of
    shape (2, 4)
"""
TENSORS = """
make(num_heads=3)(x(2, 4, 8))
    num_heads=3, inputs of width 8
make()(x(2, 4, 8), start_index=1.5)
    `start_index` must be of an integer dtype
make()(x(2, 4, 8), start_index=[1, 2, 3])
    `start_index` must have shape () or (batch,), with batch=2, seq=
make()(x(2, 4, 8), start_index=1, positions=x(4))
    cannot be used with start_index
make()(x(2, 4, 8), mask=x(2, 1, dtype="bool"))
    `mask` must have shape (batch, seq), with batch=2, seq=4
make()(x(2, 4, 8), padding_mask=x(4, dtype="bool"))
    `padding_mask` must have shape (batch, seq), with batch=2, seq=4
make()(x(2, 4, 8), segment_ids=x(2, 3, dtype="int32"))
    `segment_ids` must have shape (batch, seq), with batch=2, seq=4
make()(x(2, 4, 8), positions=x(3))
    `positions` must have shape (seq,) or (batch, seq), with
make()(x(2, 4, 8), attention_mask=x(2, 4, dtype="bool"))
    `attention_mask` must have shape (batch, query, key), with batch=2,
    query=4, key=4. Received: attention_mask of shape
make()(x(2, 4, 8), attention_mask=x(3, 4, 4, dtype="bool"))
    `attention_mask` must have shape (batch, query, key), with batch=2,
make()(x(2, 4, 8), segment_ids=x(2, 4))
    `segment_ids` must be of an integer dtype
make()(x(2, 4, 8), padding_mask=x(2, 4))
    `padding_mask` must be bool, True where a token is
make()(x(2, 4, 8), attention_mask=x(2, 4, 4))
    `attention_mask` must be bool, True where a
make()(x(2, 4, 8), positions=x(4, dtype="bool"))
    `positions` must be of an integer or float dtype
"""


@pytest.mark.parametrize(
    ("make", "x", "call", "said"),
    [
        (make, x, *row.values)
        for rows, makes in (
            (INPUTS, (*ATTENDING, feed_forward)),
            (POOLED, (pooling,)),
            (TENSORS, ATTENDING),
        )
        for make in makes
        for x in (array, symbol)
        if (make, x) not in ((block, array), (attention, symbol))
        for row in table(rows)
    ],
)
def test_calls(make, x, call, said):
    scope = {"make": make, "x": x}
    if "built" in call:
        scope["built"] = make(name="a_name")
        scope["built"].build((2, SEQ, DIM))
    check(call, said, scope)
