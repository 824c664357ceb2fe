"""What does not fit is refused with a message that names it.

That each argument of a constructor is checked is in `test_conventions.py`.
"""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_posenc as kp

DIM, SEQ = 8, 4
SIZES = {"num_heads": 2, "intermediate_dim": 8}
INPUTS = (2, SEQ, DIM)


def attention(**kwargs):
    return kp.SelfAttention(**{"num_heads": 2, **kwargs})


def block(**kwargs):
    return kp.TransformerEncoderBlock(**{**SIZES, **kwargs})


def encoder(**kwargs):
    return kp.TransformerEncoder(2, **{**SIZES, **kwargs})


def feed_forward(**kwargs):
    return kp.FeedForward(**{"intermediate_dim": 8, **kwargs})


def model(kind=kp.TransformerEncoderModel, **kwargs):
    return kind(9, **{"d_model": DIM, "num_layers": 2, **SIZES, **kwargs})


def whole(**kwargs):
    return model(kp.Transformer, **kwargs)


ATTENDING = (attention, block, encoder)
EVERY = (*ATTENDING, feed_forward)
DYNAMIC = {
    "rope_type": "dynamic",
    "factor": 2,
    "original_max_position_embeddings": 8,
}


def given(shape, dtype="float32"):
    """An array, and what Keras passes instead as it makes a model."""
    return np.ones(shape, dtype), keras.KerasTensor(shape, dtype=dtype)


# ---- Options


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (
            model,
            {"input_position": kp.AlibiBias(name="bias")},
            "built=False>. It belongs inside attention: give it as "
            "`attention_position`",
        ),
        (
            model,
            {"input_position": kp.RandomizedPositions(64)},
            "`input_position` must give (batch, seq, dim).",
        ),
        *(
            (
                make,
                {"num_heads": 4, "num_key_value_heads": 3},
                "`num_key_value_heads` must divide `num_heads`. Received: "
                "num_key_value_heads=3, num_heads=4",
            )
            for make in (attention, encoder, model)
        ),
        (model, {"num_heads": 3}, "`num_heads` must divide the width of the"),
        (attention, {"attention_window": 0}, "`attention_window` must be a"),
        (encoder, {"attention_window": [1]}, "one entry for each of the 2 blo"),
        (
            encoder,
            {"share_blocks": True, "norm_at": "between"},
            "`norm_at` that is not 'between'",
        ),
        (
            encoder,
            {"share_blocks": True, "attention_window": [1, 2]},
            "`share_blocks` needs blocks that are alike",
        ),
        *(
            (
                attention,
                {"attention_position": value},
                "`attention_position` must be an AttentionPosition, such as",
            )
            for value in ("rope", kp.AlibiBias, [kp.AlibiBias()])
        ),
        (
            block,
            {"attention_position": kp.PositionalEncoding()},
            "put it after the Embedding layer",
        ),
        (
            encoder,
            {"attention_position": [kp.AlibiBias(), "rope"]},
            "must be an AttentionPosition, such",
        ),
        (
            encoder,
            {"attention_position": [None] * 3},
            "must have one entry for each of the 2 blocks. Received: 3 entries",
        ),
        (
            whole,
            {"target_vocabulary_size": 8},
            "embeddings='shared' is one table",
        ),
        (
            whole,
            {"target_vocabulary_size": 8, "embeddings": "shared_inputs"},
            "'shared_inputs' is one table",
        ),
        (whole, {"embeddings": "both"}, "`embeddings` must be 'shared'"),
        (
            whole,
            {"input_position": kp.PositionalEncoding(scale_inputs=True)},
            "`input_position` would scale embeddings that the model scales",
        ),
        (
            whole,
            {"input_position": kp.PositionalEncoding(merge_mode="concat")},
            "outputs 16 wide: give embeddings='separate'",
        ),
        (
            whole,
            {"target_input_position": kp.AlibiBias()},
            "`target_attention_position`",
        ),
        (
            whole,
            {"cross_attention_position": kp.RotaryEmbedding(scaling=DYNAMIC)},
            "RotaryEmbedding with rope_type='dynamic' depends on the length",
        ),
        (
            whole,
            {"cross_attention_position": kp.AlibiBias(bidirectional=False)},
            "AlibiBias with bidirectional=False distinguishes earlier keys",
        ),
        (
            whole,
            {
                "num_decoder_layers": 3,
                "attention_position": [kp.AlibiBias(), None],
            },
            "`target_attention_position` as a list must have one entry for",
        ),
        (
            whole,
            {"target_attention_position": "rope"},
            "`target_attention_position` must be an AttentionPosition, such",
        ),
        (
            kp.VisionTransformerModel,
            {"image_size": (4, 4, 4), "patch_size": 2},
            "`image_size` must be",
        ),
    ],
)
def test_options(make, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**options)


# ---- Inputs


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        *(
            (
                shape,
                "float32",
                "expects inputs of shape (batch, seq, dim), with dim known and "
                f"above 0. Received: inputs of shape {shape}",
            )
            for shape in ((2, 3), (2, 3, 4, 8), (2, 3, 0))
        ),
        (INPUTS, "int32", "inputs of a float dtype, su"),
        (
            (2, SEQ, 2 * DIM),
            "float32",
            f"'a_name' was built for inputs of width {DIM}. Received: inputs "
            f"of shape (2, {SEQ}, {2 * DIM})",
        ),
    ],
)
def test_inputs(make, shape, dtype, message):
    layer = make(name="a_name")
    layer.build(INPUTS)
    layers = [layer] if "built for" in message else [layer, make()]
    for x in given(shape, dtype):
        for each in layers:
            with pytest.raises(ValueError, match=re.escape(message)):
                each(x)


@pytest.mark.parametrize("make", ATTENDING)
def test_heads_divide_the_width(make):
    for x in given(INPUTS):
        with pytest.raises(ValueError, match="num_heads=3, inputs of width 8"):
            make(num_heads=3)(x)


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"start_index": 1.5}, "`start_index` must be of an integer dtype"),
        (
            {"start_index": [1, 2, 3]},
            "`start_index` must have shape () or (batch,), with batch=2, seq=",
        ),
        (
            {"start_index": 1, "positions": np.arange(SEQ)},
            "cannot be used with start_index",
        ),
    ],
)
def test_start_index_is_where_counting_begins(make, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()(np.ones(INPUTS, "float32"), **call)


ROW = "have shape (batch, seq), with batch=2, seq=4"
PAIRS = (
    "have shape (batch, query, key), with batch=2, query=4, key=4. "
    "Received: attention_mask of shape"
)
TENSORS = [
    ("mask", (2, 1), "bool", ROW),
    ("padding_mask", (4,), "bool", ROW),
    ("segment_ids", (2, 3), "int32", ROW),
    ("positions", (3,), "float32", "have shape (seq,) or (batch, seq), with"),
    ("attention_mask", (2, 4), "bool", PAIRS),
    ("attention_mask", (3, 4, 4), "bool", PAIRS),
    ("segment_ids", (2, SEQ), "float32", "be of an integer dtype"),
    # Where a mask is added, 0 means to attend.
    ("padding_mask", (2, SEQ), "float32", "be bool, True where a token is"),
    ("attention_mask", (2, SEQ, SEQ), "float32", "be bool, True where a "),
    ("positions", (SEQ,), "bool", "be of an integer or float dtype"),
]


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize(("name", "shape", "dtype", "message"), TENSORS)
def test_tensors(make, name, shape, dtype, message):
    message = re.escape(f"`{name}` must {message}")
    for x, value in zip(given(INPUTS), given(shape, dtype), strict=True):
        with pytest.raises(ValueError, match=message):
            make()(x, **{name: value})


def test_memories():
    x, memory = ops.ones((2, 3, 8)), ops.ones((2, 5, 8))
    with pytest.raises(ValueError, match="`cross_attention_position` must be"):
        kp.TransformerDecoderBlock(2, cross_attention_position=3)
    reader = kp.TransformerDecoderBlock(**SIZES)
    alone = kp.TransformerDecoderBlock(**SIZES, use_cross_attention=False)
    mask, segments = np.ones((2, 4), bool), np.ones((2, 5), "int32")
    for layer, call, message in (
        (reader, {}, "attends to a memory: call it with `memory`"),
        (alone, {"memory": memory}, "use_cross_attention=False, and cannot"),
        (alone, {"memory_mask": mask}, "needs a `memory`"),
        (reader, {"memory": memory[:, :, :4]}, "expects `memory` of shape"),
        (reader, {"memory": memory[:1]}, "expects `memory` of shape"),
        (
            reader,
            {"memory": memory, "memory_mask": mask},
            "`memory_mask` must have shape",
        ),
        (
            reader,
            {"memory": memory, "memory_segment_ids": segments},
            "`memory_segment_ids` needs the `segment_ids`",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            layer(x, **call)


@pytest.mark.parametrize(
    "shape", [(2, 4, 4), (2, None, 4, 3), (2, 5, 4, 3), (2, 4, 3, 3)]
)
def test_images_that_have_no_patches(shape):
    with pytest.raises(ValueError, match="PatchEmbedding 'patches'"):
        kp.PatchEmbedding(2, d_model=8, name="patches").build(shape)


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", [kp.TransformerEncoderModel, kp.Transformer])
def test_id_beyond_the_vocabulary(kind):
    import tensorflow as tf

    layer = model(kind).embedding
    message = rf"layer '{layer.name}' has input_dim=9, .+ `vocabulary_size`"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        layer(np.array([[1, 9]]))
