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
    """A batch, a length, and any selection of masks."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 5))

    def numbers(*shape, most=1):
        size = int(np.prod(shape))
        entries = st.lists(st.integers(0, most), min_size=size, max_size=size)
        return np.reshape(draw(entries), shape).astype("int32")

    arguments = {}
    for name in ("mask", "padding_mask"):
        if draw(st.booleans()):
            arguments[name] = numbers(batch, length).astype("bool")
    if draw(st.booleans()):
        arguments["attention_mask"] = numbers(batch, length, length) > 0
    if draw(st.booleans()):
        arguments["segment_ids"] = numbers(batch, length, most=2)
    if draw(st.booleans()):
        arguments["causal_length"] = length
    return batch, length, arguments


def allowed(arguments, row, query, key):
    """Whether a query may attend to a key, by the words of the docstring."""
    for name in ("mask", "padding_mask"):
        if name in arguments and not arguments[name][row][key]:
            return False
    if "attention_mask" in arguments:
        if not arguments["attention_mask"][row][query][key]:
            return False
    if "segment_ids" in arguments:
        ids = arguments["segment_ids"][row]
        if ids[query] != ids[key]:
            return False
    return not ("causal_length" in arguments and key > query)


@given(masking=maskings())
def test_combined_against_loops(masking):
    batch, length, arguments = masking
    got = combine_masks(**arguments)
    if not arguments:
        assert got is None
        return
    assert keras.backend.standardize_dtype(got.dtype) == "bool"
    assert len(got.shape) == 4
    got = np.broadcast_to(ops.convert_to_numpy(got), (batch, 2, length, length))
    places = itertools.product(range(batch), range(2), *[range(length)] * 2)
    for row, head, query, key in places:
        want = allowed(arguments, row, query, key)
        assert got[row, head, query, key] == want


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_masks_of_numbers(dtype):
    mask = EXPLICIT.astype(dtype)
    square = np.stack([mask, mask, mask, mask], axis=1)
    got = combine_masks(padding_mask=mask, attention_mask=square)
    want = np.broadcast_to(mask[:, np.newaxis, np.newaxis] > 0, (2, 1, 4, 4))
    assert np.array_equal(ops.convert_to_numpy(got), want)


def test_segments_whose_ids_differ_in_high_bits_only():
    got = combine_masks(segment_ids=np.array([[1, 1 + 2**32]]))
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
        return combine_masks(
            mask=mask, segment_ids=ids, causal_length=tf.shape(ids)[1]
        )

    random = np.random.default_rng(0)
    for shape in ((1, 1), (3, 6)):
        mask = random.random(shape) < 0.5
        ids = random.integers(0, 2, shape).astype("int32")
        want = combine_masks(mask=mask, segment_ids=ids, causal_length=shape[1])
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
