"""Positions from masks and segments, against loops."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from keras import ops

import keras_posenc as kp
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


def test_refusals():
    for rows in ([1, 1, 2], np.ones((1, 1, 1))):
        with pytest.raises(ValueError, match="`mask` must have shape"):
            kp.positions.positions_from_mask(rows)
        with pytest.raises(ValueError, match="`segment_ids` must have shape"):
            kp.positions.positions_from_segments(rows)
    with pytest.raises(ValueError, match="as its `segment_ids` argument"):
        kp.positions.positions_from_segments(
            keras.Input((None,), dtype="int32")
        )
