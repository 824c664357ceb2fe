"""T5's biases: the paper, Hugging Face's buckets, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference as ref

FIXTURES = np.load(Path(__file__).parents[1] / "fixtures/position_parity.npz")
CASES = sorted({key.split("/")[1] for key in FIXTURES.files if "t5/" in key})
FARTHEST = 100_000


def numbered(heads, **options):
    """A layer whose bias is the number of the bucket, plus 1000 a head."""
    layer = kp.RelativePositionBias(**options)
    layer.build((None, heads, None, 4))
    buckets = np.arange(layer.num_buckets)[:, np.newaxis]
    layer.embeddings.assign(buckets + 1000.0 * np.arange(heads))
    return layer


def bias_of(layer, query_positions, key_positions, heads=1):
    places = [
        ops.convert_to_tensor(positions)
        for positions in (query_positions, key_positions)
    ]
    query = ops.zeros((1, heads, 1, 4))
    return ops.convert_to_numpy(layer.bias(query, query, *places))


@pytest.mark.parametrize("case", CASES)
def test_buckets_parity(case):
    """Integer for integer, at every distance of up to 100 000."""
    start = 2**24 - FARTHEST
    num_buckets, max_distance, bidirectional = map(int, case.split("_"))
    layer = numbered(
        1,
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bool(bidirectional),
    )
    relative = np.arange(-FARTHEST, FARTHEST + 1)
    runs = np.searchsorted(FIXTURES[f"t5/{case}/starts"], relative, "right")
    theirs = FIXTURES[f"t5/{case}/buckets"][runs - 1]
    got = bias_of(layer, [[start]], (start + relative)[np.newaxis])
    np.testing.assert_array_equal(got[0, 0, 0], theirs)


@given(
    exact=st.integers(1, 20),
    beyond=st.integers(1, 500),
    bidirectional=st.booleans(),
    data=st.data(),
)
def test_buckets_are_the_paper(exact, beyond, bidirectional, data):
    """In exact arithmetic, but for float32 at a border: one bucket at most."""
    num_buckets = 2 * exact * (2 if bidirectional else 1)
    max_distance = exact + beyond
    layer = numbered(
        1,
        num_buckets=num_buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    relative = np.array(
        data.draw(st.lists(st.integers(-700, 700), min_size=1, max_size=9))
    )
    got = bias_of(layer, [[0]], relative[np.newaxis])[0, 0, 0]
    want = np.array(
        [
            ref.t5_bucket(int(r), num_buckets, max_distance, bidirectional)
            for r in relative
        ]
    )
    assert np.all(np.abs(got - want) <= 1)
    inside = np.array(
        [
            ref.t5_bucket(int(r) - 1, num_buckets, max_distance, bidirectional)
            == ref.t5_bucket(
                int(r) + 1, num_buckets, max_distance, bidirectional
            )
            for r in relative
        ]
    )
    np.testing.assert_array_equal(got[inside], want[inside])


def test_real_distances_count_by_their_whole_part():
    layer = numbered(1, num_buckets=8, max_distance=20)
    got = bias_of(layer, [[0.0]], np.array([[1.9, -1.9, 0.5, -0.5, 1e9]], "f4"))
    whole = bias_of(layer, [[0]], np.array([[1, -1, 0, 0, 10**9]], "int32"))
    np.testing.assert_array_equal(got, whole)
