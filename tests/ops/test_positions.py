"""Positions from masks and segments, against loops."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.positions import (
    counted_positions,
    plain_positions,
    random_positions,
    segment_lengths,
)
from tests import reference

shapes = st.tuples(st.integers(1, 4), st.integers(1, 12))
masks = shapes.flatmap(lambda shape: arrays.arrays("bool", shape))
# Few ids, so that runs are long and ids come back.
segments = st.tuples(shapes, st.sampled_from(["int32", "int64"])).flatmap(
    lambda case: arrays.arrays(case[1], case[0], elements=st.integers(-1, 2))
)


@given(mask=masks)
def test_mask(mask):
    got = kp.positions.positions_from_mask(mask)
    assert keras.backend.standardize_dtype(got.dtype) == "int32"
    want = reference.positions_from_mask(mask)
    assert np.array_equal(ops.convert_to_numpy(got), want)


@given(ids=segments)
def test_segments(ids):
    got = kp.positions.positions_from_segments(ids)
    assert keras.backend.standardize_dtype(got.dtype) == "int32"
    want = reference.positions_from_segments(ids)
    assert np.array_equal(ops.convert_to_numpy(got), want)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([[1, 1 + 2**32, 1 + 2**32, 1]]),
        np.array([[-(2**63), 0, 0, 2**63 - 1]]),
        np.array([[2**32 - 1, 2**31, 2**31, 5]], "uint32"),
        np.array([[255, 0, 0, 1]], "uint8"),
    ],
    ids=lambda ids: f"{ids.dtype}-{ids[0, 0]}",
)
def test_ids_of_any_integer_dtype(ids):
    got = kp.positions.positions_from_segments(ids)
    assert ops.convert_to_numpy(got).tolist() == [[0, 0, 1, 0]]


@pytest.mark.parametrize(
    "function",
    [kp.positions.positions_from_mask, kp.positions.positions_from_segments],
)
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_nothing_to_count(function, shape):
    assert tuple(function(np.zeros(shape, "int32")).shape) == shape


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_of_unknown_shapes(jit_compile):
    import tensorflow as tf

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec((None, None), "bool"),
            tf.TensorSpec((None, None), "int64"),
        ],
    )
    def graph(mask, ids):
        return kp.positions.positions_from_mask(
            mask
        ), kp.positions.positions_from_segments(ids)

    random = np.random.default_rng(0)
    for shape in ((1, 1), (3, 7), (2, 50)):
        mask = random.random(shape) < 0.5
        ids = random.integers(0, 3, shape)
        from_mask, from_segments = graph(mask, ids)
        want = reference.positions_from_mask(mask)
        assert np.array_equal(from_mask, want)
        want = reference.positions_from_segments(ids)
        assert np.array_equal(from_segments, want)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (kp.positions.positions_from_mask, "mask"),
        (kp.positions.positions_from_segments, "segment_ids"),
    ],
)
@pytest.mark.parametrize("value", [[1, 1, 2], [[[1]]], 3])
def test_rows_are_wanted(function, name, value):
    message = rf"`{name}` must have shape \(batch, seq\). Received: {name} of"
    for rows in (value, np.array(value)):
        with pytest.raises(ValueError, match=message):
            function(rows)


def test_symbolic_segments_are_for_layers():
    with pytest.raises(ValueError, match="as its `segment_ids` argument"):
        kp.positions.positions_from_segments(
            keras.Input((None,), dtype="int32")
        )


@given(ids=segments, masked=st.booleans())
def test_segment_lengths(ids, masked):
    mask = np.arange(ids.size).reshape(ids.shape) % 3 > 0
    got = segment_lengths(ids, mask=mask if masked else None)
    for row, real, lengths in zip(
        ids, mask, ops.convert_to_numpy(got), strict=True
    ):
        first = 0
        for _, run in itertools.groupby(row):
            tokens = slice(first, first + len(list(run)))
            count = real[tokens].sum() if masked else tokens.stop - first
            assert set(lengths[tokens]) == {count}
            first = tokens.stop


@pytest.mark.parametrize("start", [3, -2, np.array([5, -7], "int32")])
def test_counting_from_a_start(start):
    offset = np.reshape(start, (-1, 1))
    mask = np.array([[False, True, True], [True, False, True]])
    got = ops.convert_to_numpy(counted_positions(start, mask=mask))
    want = reference.positions_from_mask(mask) + offset
    assert np.array_equal(got, want)
    ids = np.array([[1, 1, 2], [2, 1, 1]])
    got = ops.convert_to_numpy(counted_positions(start, segment_ids=ids))
    want = reference.positions_from_segments(ids) + offset
    assert np.array_equal(got, want)
    # As many rows as columns: which of the two a start is of, is not its size.
    ids = np.ones((2, 2), "int32")
    got = ops.convert_to_numpy(counted_positions(start, segment_ids=ids))
    assert np.array_equal(got, np.arange(2) + np.broadcast_to(offset, (2, 1)))
    assert counted_positions(start) is None
    got = ops.convert_to_numpy(plain_positions(start, 3))
    assert got.dtype == "int32"
    want = np.arange(3) + offset
    assert np.array_equal(got, want if np.ndim(start) else want[0])


def test_random_positions_are_the_lowest_scores():
    scores = np.array([[0.3, 0.1, 0.9, 0.2], [0.5, 0.6, 0.1, 0.0]])
    got = ops.convert_to_numpy(random_positions(scores, length=3))
    assert got.tolist() == [[0, 1, 3], [0, 2, 3]]
    count = np.array([[2], [1]], "int32")
    got = ops.convert_to_numpy(random_positions(scores, length=3, count=count))
    assert got.tolist() == [[1, 3, 3], [3, 3, 3]]
