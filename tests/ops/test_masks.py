"""Masks: found wherever Keras hides them, combined as loops say."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.masks import combine_masks, resolve_mask
from keras_posenc.ops.sides import Side

TOKENS = np.array([[5, 6, 0, 0], [7, 8, 9, 0]])


def embed():
    return keras.layers.Embedding(10, 3, mask_zero=True)


class TellMask(keras.layers.Layer):
    """Answers with the mask that `resolve_mask` finds, -1 where none."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, inputs, other=None, mask=None):
        mask = resolve_mask(mask, inputs)
        if mask is None:
            return -ops.ones_like(inputs[..., 0])
        assert keras.backend.standardize_dtype(mask.dtype) == "bool"
        return ops.cast(mask, inputs.dtype)

    def compute_output_spec(self, inputs, other=None, mask=None):
        return keras.KerasTensor(inputs.shape[:2], inputs.dtype)


def told(outputs):
    return ops.convert_to_numpy(outputs).astype(int).tolist()


CARRIED = (TOKENS != 0).astype(int).tolist()
NONE = np.full((2, 4), -1).tolist()
EXPLICIT = np.array([[0, 1, 1, 1], [1, 1, 0, 0]])


def test_carried_by_the_only_tensor():
    assert told(TellMask()(embed()(TOKENS))) == CARRIED


def test_carried_beside_other_tensors():
    # Keras leaves `mask` at None here.
    other = ops.arange(4, dtype="float32")
    assert told(TellMask()(embed()(TOKENS), other)) == CARRIED
    assert told(TellMask()(embed()(TOKENS), other=other)) == CARRIED


def test_other_tensors_lend_no_mask():
    inputs = ops.zeros((2, 4, 3))
    assert told(TellMask()(inputs, other=embed()(TOKENS))) == NONE


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_explicit_mask_wins(dtype):
    mask = EXPLICIT.astype(dtype)
    assert told(TellMask()(embed()(TOKENS), mask=mask)) == EXPLICIT.tolist()
    inputs = ops.zeros((2, 4, 3))
    assert told(TellMask()(inputs, mask=mask)) == EXPLICIT.tolist()


def test_no_mask():
    assert told(TellMask()(ops.zeros((2, 4, 3)))) == NONE
    assert resolve_mask(None, ops.zeros((2, 4, 3))) is None
    assert resolve_mask(None, np.zeros((2, 4, 3))) is None


@pytest.mark.parametrize("beside", [False, True])
def test_carried_in_a_functional_model(beside):
    tokens = keras.Input((None,), dtype="int32")
    inputs, data = [tokens], [TOKENS.astype("int32")]
    if beside:
        inputs.append(keras.Input((None,)))
        data.append(np.zeros((2, 4), "float32"))
    model = keras.Model(inputs, TellMask()(embed()(tokens), *inputs[1:]))
    assert told(model(data)) == CARRIED
    assert told(model.predict(data, verbose=0)) == CARRIED


def test_the_carried_mask_is_left_on_the_inputs():
    embedded = embed()(TOKENS)
    resolve_mask(None, embedded)
    assert told(TellMask()(embedded)) == CARRIED


# combine_masks


@st.composite
def maskings(draw):
    """A batch, two sides, or one twice, and any selection of masks."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 5))

    def numbers(*shape, most=1):
        size = int(np.prod(shape))
        entries = st.lists(st.integers(0, most), min_size=size, max_size=size)
        return np.reshape(draw(entries), shape).astype("int32")

    def side(length):
        given = {}
        if draw(st.booleans()):
            given["tokens"] = numbers(batch, length).astype("bool")
        if draw(st.booleans()):
            given["segment_ids"] = numbers(batch, length, most=2)
        if draw(st.booleans()):
            given["index"] = numbers(length, most=4)
        return Side(length, **given)

    queries = side(length)
    keys = queries if draw(st.booleans()) else side(draw(st.integers(1, 5)))
    arguments = {
        "queries": queries,
        "keys": keys,
        "causal": draw(st.booleans()),
    }
    if draw(st.booleans()):
        square = numbers(batch, length, keys.length) > 0
        arguments["attention_mask"] = square
    return batch, arguments


def allowed(arguments, row, query, key):
    """Whether a query may attend to a key, by the words of the docstring."""
    queries, keys = arguments["queries"], arguments["keys"]
    if keys.tokens is not None and not keys.tokens[row][key]:
        return False
    if "attention_mask" in arguments:
        if not arguments["attention_mask"][row][query][key]:
            return False
    if queries.segment_ids is not None and keys.segment_ids is not None:
        if queries.segment_ids[row][query] != keys.segment_ids[row][key]:
            return False
    if not arguments["causal"]:
        return True
    query, key = (
        place if side.index is None else side.index[place]
        for side, place in ((queries, query), (keys, key))
    )
    return key <= query


def compare_with_loops(got, batch, arguments):
    shape = arguments["queries"].length, arguments["keys"].length
    got = np.ones(1) if got is None else ops.convert_to_numpy(got)
    assert got.dtype == bool or got.shape == (1,)
    got = np.broadcast_to(got, (batch, 2, *shape))
    places = itertools.product(range(batch), range(2), *map(range, shape))
    for row, head, query, key in places:
        want = allowed(arguments, row, query, key)
        assert got[row, head, query, key] == want


@given(masking=maskings())
def test_combined_against_loops(masking):
    batch, arguments = masking
    got = combine_masks(**arguments)
    assert got is None or len(got.shape) == 4
    compare_with_loops(got, batch, arguments)


@given(masking=maskings(), data=st.data())
def test_some_queries_are_masked_as_among_all(masking, data):
    """... whose index is that of their place, or their own."""
    _, arguments = masking
    queries = arguments["queries"]
    rows = st.lists(st.integers(0, queries.length - 1), min_size=1, max_size=4)
    rows = np.array(data.draw(rows), "int32")
    every = combine_masks(**arguments)
    if "attention_mask" in arguments:
        arguments["attention_mask"] = arguments["attention_mask"][:, rows]
    arguments["queries"] = queries.some(rows)
    assert arguments["queries"].length == len(rows)
    got = combine_masks(**arguments)
    if every is None:
        assert got is None
        return
    every, got = (ops.convert_to_numpy(x) for x in (every, got))
    if every.shape[2] > 1:
        every = every[:, :, rows]
    every, got = np.broadcast_arrays(every, got)
    assert np.array_equal(every, got)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_masks_of_numbers(dtype):
    mask = EXPLICIT.astype(dtype)
    square = np.stack([mask, mask, mask, mask], axis=1)
    side = Side(4, tokens=mask)
    got = combine_masks(queries=side, keys=side, attention_mask=square)
    want = np.broadcast_to(mask[:, np.newaxis, np.newaxis] > 0, (2, 1, 4, 4))
    assert np.array_equal(ops.convert_to_numpy(got), want)


def test_segments_whose_ids_differ_in_high_bits_only():
    side = Side(2, segment_ids=np.array([[1, 1 + 2**32]]))
    got = combine_masks(queries=side, keys=side)
    assert ops.convert_to_numpy(got)[0, 0].tolist() == [
        [True, False],
        [False, True],
    ]


@pytest.mark.tensorflow
def test_combined_in_a_graph_of_unknown_shapes():
    import tensorflow as tf

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, None), "bool"),
            tf.TensorSpec((None, None), "int32"),
        ]
    )
    def graph(mask, ids):
        side = Side(tf.shape(ids)[1], tokens=mask, segment_ids=ids)
        return combine_masks(queries=side, keys=side, causal=True)

    random = np.random.default_rng(0)
    for shape in ((1, 1), (3, 6)):
        mask = random.random(shape) < 0.5
        ids = random.integers(0, 2, shape).astype("int32")
        side = Side(shape[1], tokens=mask, segment_ids=ids)
        want = combine_masks(queries=side, keys=side, causal=True)
        assert np.array_equal(graph(mask, ids), want)


@pytest.mark.parametrize(
    "layer",
    [kp.PositionalEncoding(), kp.MaskedAveragePooling1D(), kp.SelfAttention(1)],
)
def test_masks_of_reals_are_refused(layer):
    # Elsewhere they are added to the scores: 0 says to attend.
    mask = np.zeros((2, 4), "float32")
    message = "`mask` must be bool, True where a token is real"
    with pytest.raises(ValueError, match=message):
        layer(ops.zeros((2, 4, 3)), mask=mask)
    with pytest.raises(ValueError, match=message):
        kp.positions_from_mask(mask)
