"""The learned table: its rows, its end, and its other lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference

LENGTH, DIM = 10, 4
BATCH, SEQ = 2, 6
MASK = np.array([[0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0]], bool)
SEGMENTS = np.array([[1, 1, 2, 2, 2, 0], [3, 3, 3, 3, 0, 0]])
NAN = float("nan")


def inputs_of(seq=SEQ, batch=BATCH):
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, seq, DIM)).astype("float32")


def alone(length=LENGTH, **config):
    """A layer of known rows: column c of row p holds 10 p + c."""
    layer = kp.PositionEmbedding(length, merge_mode=None, **config)
    layer.build((None, None, DIM))
    layer.embeddings.assign(rows(np.arange(length)))
    return layer


def rows(positions):
    return 10.0 * np.asarray(positions)[..., np.newaxis] + np.arange(DIM)


STANDINGS = {
    "default": ({}, {}, np.arange(SEQ)),
    "start": ({}, {"start_index": 4}, 4 + np.arange(SEQ)),
    "start-batch": (
        {},
        {"start_index": np.array([4, 1])},
        np.array([[4], [1]]) + np.arange(SEQ),
    ),
    "positions": ({}, {"positions": [9, 0, 3, 3, 1, 2]}, [9, 0, 3, 3, 1, 2]),
    "segments": (
        {},
        {"segment_ids": SEGMENTS, "start_index": 3},
        3 + reference.positions_from_segments(SEGMENTS),
    ),
    "skip": (
        {"skip_masked": True},
        {"mask": MASK},
        reference.positions_from_mask(MASK),
    ),
}


@pytest.mark.parametrize("standing", STANDINGS)
def test_rows_are_those_of_the_positions(standing, near):
    config, call, positions = STANDINGS[standing]
    positions = np.broadcast_to(positions, (BATCH, SEQ))
    near(alone(**config)(inputs_of(), **call), rows(positions))


# The end of the table.

ENDS = r"learned only the positions 0 to 9 \(sequence_length=10\)\. .* "
OUTSIDE = [
    ({}, {}, 11, r"inputs of length 11 with start_index=0"),
    ({}, {"start_index": -1}, SEQ, r"inputs of length 6 with start_index=-1"),
    (
        {},
        {"start_index": np.array([0, 5])},
        SEQ,
        r"inputs of length 6 with start_index=\[0, 5\]",
    ),
    ({}, {"positions": [0, 1, -2, 3, 10, 4]}, SEQ, "positions from -2 to 10"),
    pytest.param(
        *({}, {"positions": [2**40] * SEQ}, SEQ, f"positions from {2**40} to"),
        marks=pytest.mark.tensorflow,  # 64 bits
    ),
    (
        {},
        {"segment_ids": SEGMENTS, "start_index": 7},
        SEQ,
        "positions from 7 to 10",
    ),
    (
        {"skip_masked": True},
        {"mask": MASK, "start_index": 7},
        SEQ,
        "positions from 7 to 10",
    ),
]


@pytest.mark.parametrize(("config", "call", "seq", "message"), OUTSIDE)
def test_outside_the_table_is_an_error(config, call, seq, message):
    with pytest.raises(ValueError, match=ENDS + "Received: " + message):
        alone(**config, name="where")(inputs_of(seq), **call)


def test_masked_tokens_may_stand_anywhere(near):
    mask = np.array([[1, 0, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0]], bool)
    positions = np.where(mask, np.arange(SEQ), [99, -99, 99, -99, 99, -99])
    want = np.where(mask, positions, 0)
    near(alone()(inputs_of(), positions=positions, mask=mask), rows(want))


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_graph_outside_the_table_is_nan(jit_compile):
    import tensorflow as tf

    layer = alone()

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec((None, None, DIM)),
            tf.TensorSpec((None, None), tf.bool),
            tf.TensorSpec((), tf.int32),
        ],
    )
    def graph(inputs, mask, start_index):
        whole = layer(inputs, mask=mask)  # from 0, which is known
        return layer(inputs, mask=mask, start_index=start_index), whole

    for seq, begin in ((12, 0), (4, -2), (3, 8), (3, 2**24)):
        mask = np.ones((2, seq), bool)
        mask[1, 0] = mask[1, -1] = False
        both = graph(inputs_of(seq), mask, begin)
        for outputs, start in zip(both, (begin, 0), strict=True):
            positions = start + np.arange(seq)
            clipped = np.clip(positions, 0, LENGTH - 1)
            nan = mask & (positions != clipped)
            want = np.where(nan[..., np.newaxis], NAN, rows(clipped))
            np.testing.assert_array_equal(outputs, want)


# Other lengths.


@given(old=st.integers(1, 12), new=st.integers(1, 30))
def test_resized_tables_are_interpolated(old, new, near):
    rng = np.random.default_rng(old)
    table = rng.normal(size=(old, DIM)).astype("float32")
    layer = kp.PositionEmbedding(old, name="where", trainable=False)
    layer.build((None, None, DIM))
    layer.embeddings.assign(table)
    other = layer.resized(new)
    want = reference.resized_table(table, new)
    # Rounded to float32 once, of numbers below 8.
    near(other.embeddings, want, 4 * 2.0**-24)
    near(other.embeddings[0], table[0])
    if new > 1:
        near(other.embeddings[-1], table[-1])
    config = {**layer.get_config(), "sequence_length": new}
    assert other.get_config() == config
    near(layer.embeddings, table)  # which stays as it was


def test_resized_with_a_width_of_its_own(near):
    layer = kp.PositionEmbedding(3, merge_mode="concat", encoding_dim=7)
    assert not layer.resized(5).built
    with pytest.raises(ValueError, match="`sequence_length` must be a posit"):
        layer.resized(0)
    layer(inputs_of(3))
    outputs = layer.resized(5)(inputs_of(5))
    near(outputs[:, 0, DIM:], ops.stack([layer.embeddings[0]] * BATCH))
