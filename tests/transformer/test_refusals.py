"""What does not fit is refused with a message that names it.

That each argument of a constructor is checked is in `test_conventions.py`.
"""

import re

import keras
import numpy as np
import pytest

import keras_posenc as kp

DIM, SEQ = 8, 4


def model(**kwargs):
    sizes = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
    return kp.TransformerEncoderModel(
        **{"vocabulary_size": 9, "d_model": DIM, **sizes, **kwargs}
    )


def block(**kwargs):
    return kp.TransformerEncoderBlock(
        **{"num_heads": 2, "intermediate_dim": 8, **kwargs}
    )


def encoder(**kwargs):
    return kp.TransformerEncoder(
        **{"num_layers": 2, "num_heads": 2, "intermediate_dim": 8, **kwargs}
    )


def attention(**kwargs):
    return kp.SelfAttention(**{"num_heads": 2, **kwargs})


def feed_forward(**kwargs):
    return kp.FeedForward(**{"intermediate_dim": 8, **kwargs})


ATTENDING = (attention, block, encoder)
EVERY = (*ATTENDING, feed_forward)
INPUTS = (2, SEQ, DIM)


def given(shape, dtype="float32"):
    """An array, and what Keras passes instead as it makes a model."""
    return np.ones(shape, dtype), keras.KerasTensor(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            kp.AlibiBias(name="bias"),
            "`input_position` encodes the embeddings, and AlibiBias belongs "
            "inside attention: give it as `attention_position`. "
            "Received: input_position=<AlibiBias name=bias",
        ),
        (
            kp.RandomizedPositions(64, name="where"),
            "`input_position` must give (batch, seq, dim). "
            "Received: input_position=<RandomizedPositions name=where",
        ),
    ],
)
def test_input_position_is_an_encoding_of_the_input(value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        model(input_position=value)


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


@pytest.mark.parametrize("make", [*ATTENDING, model])
@pytest.mark.parametrize(("heads", "shared"), [(4, 3), (2, 4)])
def test_shared_heads_divide_the_heads(make, heads, shared):
    message = (
        "`num_key_value_heads` must divide `num_heads`. Received: "
        f"num_key_value_heads={shared}, num_heads={heads}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        make(num_heads=heads, num_key_value_heads=shared)


@pytest.mark.parametrize("make", ATTENDING)
def test_heads_divide_the_width(make):
    message = (
        "`num_heads` must divide the width of the inputs, unless `head_dim` is "
        "given. Received: "
        "num_heads=3, inputs of width 8"
    )
    for x in (np.ones((2, SEQ, DIM), "float32"), keras.Input((SEQ, DIM))):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(num_heads=3)(x)
    with pytest.raises(ValueError, match=re.escape(message)):
        model(num_heads=3)


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4, 8), (2, 3, 0)])
def test_inputs_are_batches_of_sequences(make, shape):
    layer = make(name="a_name")
    message = (
        f"{type(layer).__name__} 'a_name' expects inputs of shape "
        "(batch, seq, dim), with dim known and above 0. Received: "
        f"inputs of shape {shape}"
    )
    for x in given(shape):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(name="a_name")(x)
    with pytest.raises(ValueError, match="expects inputs of shape"):
        make()(keras.KerasTensor((2, 3, None)))
    layer.build((2, 3, DIM))
    with pytest.raises(ValueError, match="expects inputs of shape"):
        layer(np.ones(shape, "float32"))


@pytest.mark.parametrize("make", EVERY)
def test_inputs_are_floats(make):
    for x in given(INPUTS, "int32"):
        with pytest.raises(ValueError, match="inputs of a float dtype, su"):
            make()(x)


ROW = "(batch, seq), with batch=2, seq=4"
ONE_OR_ALL = "(seq,) or (batch, seq), with batch=2, seq=4"
PAIRS = "(batch, query, key), with batch=2, query=4, key=4"
SHAPES = {
    "mask": ("bool", ROW, [(2, 3), (2, 1), (3, 4), (4,), (2, 4, 1)]),
    "padding_mask": ("bool", ROW, [(2, 5), (4,), (2, 1, 4)]),
    "segment_ids": ("int32", ROW, [(4,), (2, 3)]),
    "positions": ("float32", ONE_OR_ALL, [(3,), (1,), (2, 3), ()]),
    "attention_mask": (
        "bool",
        PAIRS,
        [(2, 4), (2, 4, 3), (2, 3, 4), (3, 4, 4), (2, 1, 4, 4)],
    ),
}


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize("name", SHAPES)
def test_tensors_fit(make, name):
    dtype, wanted, shapes = SHAPES[name]
    # One method checks for all three.
    for shape in shapes if make is attention else shapes[:1]:
        for x, value in zip(given(INPUTS), given(shape, dtype), strict=True):
            with pytest.raises(ValueError, match="must have shape") as caught:
                make()(x, **{name: value})
            assert f"`{name}` must have shape {wanted}" in str(caught.value)
            assert f"Received: {name} of shape {shape}" in str(caught.value)


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("segment_ids", (2, SEQ), "float32", "be of an integer dtype"),
        # Where a mask is added, 0 means to attend.
        ("padding_mask", (2, SEQ), "float32", "be bool, True where a token is"),
        ("attention_mask", (2, SEQ, SEQ), "float32", "be bool, True where a "),
        ("positions", (SEQ,), "bool", "be of an integer or float dtype"),
    ],
)
def test_tensors_are_of_a_dtype(make, name, shape, dtype, message):
    for x, value in zip(given(INPUTS), given(shape, dtype), strict=True):
        with pytest.raises(ValueError, match=f"`{name}` must {message}") as got:
            make()(x, **{name: value})
        assert f"Received: {name} of dtype {dtype}" in str(got.value)


@pytest.mark.parametrize("make", EVERY)
def test_width_it_was_built_for(make):
    layer = make(name="a_name")
    layer(np.ones(INPUTS, "float32"))
    message = (
        f"{type(layer).__name__} 'a_name' was built for inputs of width {DIM}. "
        f"Received: inputs of shape (2, {SEQ}, {2 * DIM})"
    )
    for x in given((2, SEQ, 2 * DIM)):
        with pytest.raises(ValueError, match=re.escape(message)):
            layer(x)


@pytest.mark.tensorflow
@pytest.mark.parametrize("make", [kp.TransformerEncoderModel, kp.Transformer])
def test_id_beyond_the_vocabulary(make):
    import tensorflow as tf

    layer = make(9, d_model=DIM, num_layers=1, num_heads=2).embedding
    message = rf"layer '{layer.name}' has input_dim=9, .+ `vocabulary_size`"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        layer(np.array([[1, 9]]))
