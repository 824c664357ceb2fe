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
        make()(np.ones((2, SEQ, DIM), "float32"), **call)


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
    for x in (np.ones(shape, "float32"), keras.KerasTensor(shape)):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(name="a_name")(x)
    with pytest.raises(ValueError, match="expects inputs of shape"):
        make()(keras.KerasTensor((2, 3, None)))
    layer.build((2, 3, DIM))
    with pytest.raises(ValueError, match="expects inputs of shape"):
        layer(np.ones(shape, "float32"))


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("symbolic", [False, True])
def test_inputs_are_floats(make, symbolic):
    x = np.ones((2, SEQ, DIM), "int32")
    if symbolic:
        x = keras.KerasTensor(x.shape, dtype="int32")
    with pytest.raises(ValueError, match="expects inputs of a float dtype, su"):
        make()(x)


ROW = "(batch, seq), with batch=2, seq=4"
ONE_OR_ALL = "(seq,) or (batch, seq), with batch=2, seq=4"
PAIRS = "(batch, query, key), with batch=2, query=4, key=4"
TENSORS = [
    (name, shape, dtype, wanted)
    for name, dtype, wanted, shapes in (
        ("mask", "bool", ROW, [(2, 3), (2, 1), (3, 4), (4,), (2, 4, 1)]),
        ("padding_mask", "bool", ROW, [(2, 5), (4,), (2, 1, 4)]),
        ("segment_ids", "int32", ROW, [(4,), (2, 3)]),
        ("positions", "float32", ONE_OR_ALL, [(3,), (1,), (2, 3), ()]),
        (
            "attention_mask",
            "bool",
            PAIRS,
            [(2, 4), (2, 4, 3), (2, 3, 4), (3, 4, 4), (2, 1, 4, 4)],
        ),
    )
    for shape in shapes
]


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("name", "shape", "dtype", "wanted"), TENSORS)
def test_tensors_fit(make, symbolic, name, shape, dtype, wanted):
    x, value = np.ones((2, SEQ, DIM), "float32"), np.ones(shape, dtype)
    if symbolic:
        x = keras.KerasTensor(x.shape)
        value = keras.KerasTensor(shape, dtype=dtype)
    with pytest.raises(ValueError, match="must have shape") as caught:
        make()(x, **{name: value})
    assert f"`{name}` must have shape {wanted}" in str(caught.value)
    assert f"Received: {name} of shape {shape}" in str(caught.value)


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize("symbolic", [False, True])
def test_segments_are_integers(make, symbolic):
    x = np.ones((2, SEQ, DIM), "float32")
    segment_ids = np.ones((2, SEQ), "float32")
    if symbolic:
        x, segment_ids = map(keras.KerasTensor, (x.shape, segment_ids.shape))
    with pytest.raises(
        ValueError, match="`segment_ids` must be of an integer dtype"
    ):
        make()(x, segment_ids=segment_ids)


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("padding_mask", (2, SEQ)), ("attention_mask", (2, SEQ, SEQ))],
)
def test_masks_are_not_added_to_the_scores(make, symbolic, name, shape):
    # Where a mask is added, 0 means to attend.
    x, mask = np.ones((2, SEQ, DIM), "float32"), np.zeros(shape, "float32")
    if symbolic:
        x, mask = keras.KerasTensor(x.shape), keras.KerasTensor(mask.shape)
    message = f"`{name}` must be bool, True where a token is real or may be"
    with pytest.raises(ValueError, match=message) as caught:
        make()(x, **{name: mask})
    assert f"Received: {name} of dtype float32" in str(caught.value)


@pytest.mark.parametrize("make", ATTENDING)
@pytest.mark.parametrize("symbolic", [False, True])
def test_positions_are_numbers(make, symbolic):
    x, positions = np.ones((2, SEQ, DIM), "float32"), np.ones(SEQ, bool)
    if symbolic:
        x = keras.KerasTensor(x.shape)
        positions = keras.KerasTensor((SEQ,), dtype="bool")
    with pytest.raises(
        ValueError,
        match=r"`positions` must be of an integer or float dtype\. "
        r"Received: positions of dtype bool",
    ):
        make()(x, positions=positions)


@pytest.mark.parametrize("make", EVERY)
def test_width_it_was_built_for(make):
    layer = make(name="a_name")
    layer(np.ones((2, SEQ, DIM), "float32"))
    message = (
        f"{type(layer).__name__} 'a_name' was built for inputs of width {DIM}. "
        f"Received: inputs of shape (2, {SEQ}, {2 * DIM})"
    )
    wide = (2, SEQ, 2 * DIM)
    for x in (np.ones(wide, "float32"), keras.KerasTensor(wide)):
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
