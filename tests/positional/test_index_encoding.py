"""The index and its share of the length, against plain counting."""

import numpy as np
import pytest
from keras import ops

import keras_posenc as kp
from tests import reference

DIM = 3
MASK = np.array([[0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0], [0] * 6], bool)
SEGMENTS = np.array([[1, 1, 2, 2, 2, 1], [3, 3, 3, 3, 0, 0], [5] * 6])
BATCH, SEQ = MASK.shape
# An integer is exact. XLA divides by a reciprocal: two roundings.
QUOTIENT = 2 * 2.0**-24


def inputs_of(batch=BATCH, seq=SEQ):
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, seq, DIM)).astype("float32")


@pytest.mark.parametrize(
    ("normalize", "start", "segmented", "masked"),
    [
        (False, -2, True, False),
        (False, np.array([4, 0, 70000], "int32"), False, True),
        (True, 0, False, False),
        (True, np.array([4, 0, 70000], "int32"), True, True),
        (True, -2, False, True),
        (True, 0, True, False),
    ],
)
def test_counting(normalize, start, segmented, masked, near):
    segments = SEGMENTS if segmented else None
    mask = MASK if masked else None
    if segmented:
        positions = reference.positions_from_segments(SEGMENTS)
    else:
        positions = np.broadcast_to(np.arange(SEQ), (BATCH, SEQ))
    positions = positions + np.reshape(start, (-1, 1))
    want = reference.index_encoding(positions, segments, mask, normalize)
    layer = kp.positions.IndexEncoding(normalize, merge_mode=None)
    got = layer(inputs_of(), start_index=start, segment_ids=segments, mask=mask)
    near(got, want, np.abs(want) * QUOTIENT * normalize)


@pytest.mark.parametrize("normalize", [False, True])
def test_masked_tokens_are_skipped(normalize, near):
    positions = reference.positions_from_mask(MASK)
    want = reference.index_encoding(positions, None, MASK, normalize)
    layer = kp.positions.IndexEncoding(
        normalize, merge_mode=None, skip_masked=True
    )
    near(layer(inputs_of(), mask=MASK), want, want * QUOTIENT * normalize)


def test_given_positions_are_shares_of_their_segments(near):
    positions = np.arange(BATCH * SEQ).reshape(BATCH, SEQ)
    want = reference.index_encoding(positions, SEGMENTS, MASK, True)
    layer = kp.positions.IndexEncoding(True, merge_mode=None)
    got = layer(
        inputs_of(), positions=positions, segment_ids=SEGMENTS, mask=MASK
    )
    got = ops.convert_to_numpy(got)
    near(got[MASK], want[MASK], np.abs(want[MASK]) * QUOTIENT)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        {"positions": np.full(SEQ, np.nan, "float32")},
        {"positions": np.full(SEQ, 2.0**24 + 2)},
        {"start_index": -(2**24) - 6},
        {"start_index": 2**31 - 3, "segment_ids": SEGMENTS},
    ],
    ids=str,
)
def test_beyond_the_limit_is_nan(call, normalize):
    layer = kp.positions.IndexEncoding(normalize, merge_mode=None)
    assert np.all(np.isnan(ops.convert_to_numpy(layer(inputs_of(), **call))))
