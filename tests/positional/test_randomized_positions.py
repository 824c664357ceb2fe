"""Random positions: which may be drawn, how often, and when none are."""

import itertools
import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_posenc as kp
from tests import reference

MASK = np.array([[0, 0, 1, 1, 0, 1], [1, 1, 1, 1, 0, 0], [0] * 6], bool)
BATCH, SEQ = MASK.shape


def drawn(layer, *shape, **call):
    inputs = np.zeros(shape, "float32")
    return ops.convert_to_numpy(layer(inputs, training=True, **call))


@given(seq=st.integers(1, 20), more=st.integers(0, 30), seed=st.integers(0, 99))
def test_positions_rise_within_the_range(seq, more, seed):
    layer = kp.RandomizedPositions(seq + more, seed=seed)
    positions = drawn(layer, 3, seq, 2)
    assert positions.shape == (3, seq)
    assert positions.dtype == "int32"
    assert np.all(np.diff(positions, axis=1) > 0)
    assert positions.min() >= 0
    assert positions.max() < seq + more
    if not more:
        assert np.array_equal(positions, [np.arange(seq)] * 3)


@given(seq=st.integers(1, 20), more=st.integers(0, 30), seed=st.integers(0, 99))
def test_skips_are_of_two_runs(seq, more, seed):
    """Zhu et al. 2023, with the first run as in their code."""
    layer = kp.RandomizedPositions(seq + more, draw="skip", seed=seed)
    positions = drawn(layer, 3, seq, 2)
    assert positions.dtype == "int32"
    for row in positions:
        skips = np.flatnonzero(np.diff(row) != 1)
        assert len(skips) <= 1
        assert row[0] == 0
        for skip in skips:
            assert skip + 1 <= (seq + 1) // 2
        assert np.all(np.diff(row) > 0)
        assert row[-1] < seq + more
    counted = ops.convert_to_numpy(layer(np.zeros((1, seq))))
    np.testing.assert_array_equal(counted, [np.arange(seq)])


def test_every_skip_is_equally_likely():
    """Of 3 tokens the first 1 or 2, moved by 0 to 4."""
    layer = kp.RandomizedPositions(7, draw="skip", seed=1)
    x = np.zeros((5000, 4), "float32")
    mask = np.arange(4) < np.full((5000, 1), 3)
    rows = ops.convert_to_numpy(layer(x, mask=mask, training=True))
    assert np.array_equal(rows[:, 3], rows[:, 2])
    found = [tuple(row) for row in rows[:, :3]]
    wanted = {
        tuple(np.arange(3) + shift * (np.arange(3) >= first)): 0
        for first in (1, 2)
        for shift in range(5)
    }
    assert {*found} == {*wanted}
    counts = [found.count(each) for each in wanted if each != (0, 1, 2)]
    # Two ways lead to (0, 1, 2): it has 2 of 10. Six deviations of 500.
    assert max(abs(count - 500) for count in counts) < 6 * math.sqrt(450)


def frequencies_of(rows):
    """How far the counts of all ten pairs out of five are from even.

    Their chi-squared statistic has 9 degrees of freedom: mean 9, standard
    deviation sqrt(18).
    """
    pairs = list(itertools.combinations(range(5), 2))
    found = [tuple(row) for row in rows]
    counts = np.array([found.count(pair) for pair in pairs])
    assert counts.sum() == len(rows)
    expected = len(rows) / len(pairs)
    return np.sum((counts - expected) ** 2 / expected)


LARGEST = 9 + 6 * math.sqrt(18)


def test_every_set_is_equally_likely():
    rows = drawn(kp.RandomizedPositions(5, seed=1), 4000, 2)
    assert frequencies_of(rows) < LARGEST
    layer = kp.RandomizedPositions(5, skip_masked=True, seed=1)
    mask = np.array([[False, True, False, True]] * 4000)
    positions = drawn(layer, 4000, 4, mask=mask)
    assert frequencies_of(positions[:, [1, 3]]) < LARGEST


def test_masked_tokens_stand_with_the_last_unmasked_one():
    layer = kp.RandomizedPositions(50, skip_masked=True, seed=0)
    positions = drawn(layer, BATCH, SEQ, mask=MASK)
    assert np.all((positions >= 0) & (positions < 50))
    among = reference.positions_from_mask(MASK)
    for row, mask, count in zip(positions, MASK, among, strict=True):
        assert np.all(np.diff(row[mask]) > 0)
        if mask.any():
            assert np.array_equal(row, row[mask][count])


def means(count, max_position):
    """Of sorted draws without repetition, rounded down, in exact integers."""
    return [
        (k + 1) * (max_position + 1) // (count + 1) - 1 for k in range(count)
    ]


def test_tokens_are_counted_outside_of_training_with_skips():
    inputs = np.zeros((BATCH, SEQ), "int32")
    layer = kp.RandomizedPositions(50, draw="skip")
    assert np.array_equal(layer(inputs), [np.arange(SEQ)] * BATCH)
    rows = ops.convert_to_numpy(layer(inputs, mask=MASK, training=False))
    assert rows.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 3, 3],  # padding stands with the last token
        [0] * 6,
    ]
    skip = kp.RandomizedPositions(50, draw="skip", skip_masked=True)
    among = reference.positions_from_mask(MASK)
    assert np.array_equal(skip(inputs, mask=MASK), among)
    assert np.array_equal(skip(inputs), [np.arange(SEQ)] * BATCH)


def test_tokens_are_spread_otherwise():
    inputs = np.zeros((BATCH, SEQ), "int32")
    layer = kp.RandomizedPositions(50)
    rows = ops.convert_to_numpy(layer(inputs, mask=MASK, training=False))
    four = means(4, 50)
    (one,) = means(1, 50)
    assert rows.tolist() == [means(6, 50), [*four, *four[3:] * 2], [one] * 6]
    skip = kp.RandomizedPositions(50, skip_masked=True)
    rows = ops.convert_to_numpy(skip(inputs, mask=MASK))
    a, b, c = means(3, 50)
    assert rows.tolist()[0] == [a, a, a, b, b, c]
    assert rows.tolist()[1:] == [[*four, *four[3:] * 2], [one] * 6]


@pytest.mark.parametrize(
    ("seq", "most"), [(1, 1), (60, 100_000), (4096, 2**24 - 3), (30_000, 2**24)]
)
def test_spread_positions_are_the_means(seq, most):
    """Rising and in range; exact as long as products are."""
    (row,) = ops.convert_to_numpy(
        kp.RandomizedPositions(most)(np.zeros((1, seq), "int32"))
    )
    assert np.all(np.diff(row) > 0)
    assert 0 <= row[0] <= row[-1] < most
    error = np.abs(row - np.array(means(seq, most)))
    assert error.max() <= (seq > 4096)


def test_seeds():
    first, again, other = (
        kp.RandomizedPositions(1000, seed=seed) for seed in (1, 1, 2)
    )
    one = drawn(first, 2, 9)
    assert np.array_equal(one, drawn(again, 2, 9))
    assert not np.array_equal(one, drawn(other, 2, 9))
    assert not np.array_equal(one, drawn(first, 2, 9))  # the next draw
    assert not np.array_equal(one[0], one[1])  # each row has its own


@pytest.mark.tensorflow
def test_one_draw_for_each_step_of_a_graph():
    import tensorflow as tf

    layer = kp.RandomizedPositions(100, seed=0)
    spec = tf.TensorSpec((None, None), tf.int32)
    graph = tf.function(
        lambda ids: layer(ids, training=True), input_signature=[spec]
    )
    first, second = (graph(np.zeros((2, 6), "int32")).numpy() for _ in range(2))
    assert np.all(np.diff(first) > 0)
    assert not np.array_equal(first, second)
    assert graph(np.zeros((1, 100), "int32")).shape == (1, 100)
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(np.zeros((1, 101), "int32"))


@pytest.mark.slow
@pytest.mark.tensorflow
def test_exports_draw_nothing(tmp_path):
    from ai_edge_litert.interpreter import Interpreter

    for skip_masked, draw in ((False, "sorted"), (True, "skip")):
        layer = kp.RandomizedPositions(64, draw=draw, skip_masked=skip_masked)
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(20, 8, mask_zero=True)(ids)
        model = keras.Model(ids, kp.PositionalEncoding()(x, positions=layer(x)))
        path = tmp_path / "model.tflite"
        kp.export_litert(model, path, max_length=33)
        runner = Interpreter(str(path)).get_signature_runner("serving_default")
        for ids in ([[1, 2, 3]], [[0, 4, 0, 5, 0], [6, 0, 0, 0, 0]]):
            ids = np.array(ids, "int32")
            (got,) = runner(ids=ids).values()
            np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-5)
