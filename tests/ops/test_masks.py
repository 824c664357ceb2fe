"""Masks: combined as loops say."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from keras_posenc.ops.masks import Side, combine_masks

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


def test_segments_whose_ids_differ_in_high_bits_only():
    side = Side(2, segment_ids=np.array([[1, 1 + 2**32]]))
    got = combine_masks(queries=side, keys=side)
    assert ops.convert_to_numpy(got)[0, 0].tolist() == [
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize(
    "layer",
    [kp.PositionalEncoding(), kp.Pooling1D("mean"), kp.SelfAttention(1)],
)
def test_masks_of_reals_are_refused(layer):
    # Elsewhere they are added to the scores: 0 says to attend.
    mask = np.zeros((2, 4), "float32")
    message = "`mask` must be bool, True where a token is real"
    with pytest.raises(ValueError, match=message):
        layer(ops.zeros((2, 4, 3)), mask=mask)
    with pytest.raises(ValueError, match=message):
        kp.positions.positions_from_mask(mask)
