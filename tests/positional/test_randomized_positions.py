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
    # The measure does see what is uneven.
    uneven = np.sort(np.random.default_rng(0).integers(0, 4, (4000, 2)))
    uneven[:, 1] += 1
    assert frequencies_of(uneven) > LARGEST


def test_every_set_is_equally_likely_for_the_unmasked():
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


def test_padding_moves_no_token():
    """... since the draws do not depend on the length."""
    ids = np.array([[5, 2, 7]])
    answers = []
    for left, right in ((0, 0), (2, 0), (0, 4), (1, 3)):
        padded = np.pad(ids, [(0, 0), (left, right)])
        x = keras.layers.Embedding(9, 4, mask_zero=True)(padded)
        layer = kp.RandomizedPositions(30, skip_masked=True, seed=3)
        positions = ops.convert_to_numpy(layer(x, training=True))
        answers.append(positions[padded > 0].tolist())
    assert answers == answers[:1] * 4


def means(count, max_position):
    """Of sorted draws without repetition, rounded down, in exact integers."""
    return [
        (k + 1) * (max_position + 1) // (count + 1) - 1 for k in range(count)
    ]


@pytest.mark.parametrize("training", [False, None])
def test_tokens_are_counted_on_request(training):
    inputs = np.zeros((BATCH, SEQ), "int32")
    layer = kp.RandomizedPositions(50, inference="count")
    plain = layer(inputs, training=training)
    assert np.array_equal(plain, [np.arange(SEQ)] * BATCH)
    rows = ops.convert_to_numpy(layer(inputs, mask=MASK, training=training))
    assert rows.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3, 3, 3],  # padding stands with the last token
        [0] * 6,
    ]
    skip = kp.RandomizedPositions(50, inference="count", skip_masked=True)
    among = reference.positions_from_mask(MASK)
    assert np.array_equal(skip(inputs, mask=MASK, training=training), among)
    counted = skip(inputs, training=training)
    assert np.array_equal(counted, [np.arange(SEQ)] * BATCH)


@pytest.mark.parametrize("training", [False, None])
def test_tokens_are_spread_otherwise(training):
    inputs = np.zeros((BATCH, SEQ), "int32")
    layer = kp.RandomizedPositions(50)
    plain = layer(inputs, training=training)
    assert np.array_equal(plain, [means(SEQ, 50)] * BATCH)
    rows = ops.convert_to_numpy(layer(inputs, mask=MASK, training=training))
    four = means(4, 50)
    (one,) = means(1, 50)
    assert rows.tolist() == [means(6, 50), [*four, *four[3:] * 2], [one] * 6]
    skip = kp.RandomizedPositions(50, skip_masked=True)
    rows = ops.convert_to_numpy(skip(inputs, mask=MASK, training=training))
    a, b, c = means(3, 50)
    assert rows.tolist()[0] == [a, a, a, b, b, c]
    assert rows.tolist()[1:] == [[*four, *four[3:] * 2], [one] * 6]


@given(seq=st.integers(1, 60), more=st.integers(0, 10**5))
def test_spread_positions_are_the_means(seq, more):
    layer = kp.RandomizedPositions(seq + more)
    (row,) = ops.convert_to_numpy(layer(np.zeros((1, seq), "int32")))
    assert row.tolist() == means(seq, seq + more)


@pytest.mark.parametrize("seq", [4096, 30_000])
def test_spread_positions_far_out(seq):
    """Rising and in range; exact as long as products are."""
    (row,) = ops.convert_to_numpy(
        kp.RandomizedPositions(2**24 - 3)(np.zeros((1, seq), "int32"))
    )
    assert np.all(np.diff(row) > 0)
    assert 0 <= row[0] <= row[-1] < 2**24 - 3
    error = np.abs(row - np.array(means(seq, 2**24 - 3)))
    assert error.max() <= (seq > 4096)


def test_spread_positions_are_what_draws_are_on_average():
    """Within six standard errors, each position of 6 draws out of 50."""
    layer = kp.RandomizedPositions(50, seed=4)
    rows = drawn(layer, 2000, 6)
    spread = ops.convert_to_numpy(layer(np.zeros((1, 6), "int32")))[0]
    error = 6 * rows.std(axis=0) / np.sqrt(len(rows))
    difference = rows.mean(axis=0) - spread
    assert np.all((difference > -error) & (difference < 1 + error))


def test_draws_leave_padding_out():
    """A short row draws over the whole range, whatever it is padded to."""
    layer = kp.RandomizedPositions(30, seed=1)
    mask = np.array([[True] * 2 + [False] * 28] * 500)
    rows = drawn(layer, 500, 30, mask=mask)
    assert np.all(rows[:, 0] < rows[:, 1])
    assert np.all(rows[:, 2:] == rows[:, 1:2])
    assert rows[:, 1].max() == 29
    assert np.abs(rows[:, 0].mean() - means(2, 30)[0]) < 2


def test_seeds():
    first, again, other = (
        kp.RandomizedPositions(1000, seed=seed) for seed in (1, 1, 2)
    )
    one = drawn(first, 2, 9)
    assert np.array_equal(one, drawn(again, 2, 9))
    assert not np.array_equal(one, drawn(other, 2, 9))
    assert not np.array_equal(one, drawn(first, 2, 9))  # the next draw
    assert not np.array_equal(one[0], one[1])  # each row has its own


def model_of(layer, **config):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(20, 8, mask_zero=True)(ids)
    positions = layer(x)
    x = kp.PositionalEncoding(**config)(x, positions=positions)
    x = kp.Pooling1D("mean")(x)
    return keras.Model(ids, keras.layers.Dense(1, name="answer")(x))


def test_learns_with_random_positions_and_counts_in_inference(tmp_path):
    model = model_of(kp.RandomizedPositions(64, inference="count", seed=0))
    ids = np.random.default_rng(0).integers(1, 20, (4, 7)).astype("int32")
    embedded = model.layers[1](ids)
    plain = kp.PositionalEncoding()(embedded)
    plain = model.layers[-1](kp.Pooling1D("mean")(plain))
    plain, got, random = (
        ops.convert_to_numpy(answer)
        for answer in (plain, model(ids), model(ids, training=True))
    )
    # Ranges and explicit positions are composed from other tables.
    np.testing.assert_allclose(got, plain, rtol=0, atol=20 * 2.0**-24)
    assert not np.allclose(random, got)
    model.compile("sgd", "mse")
    model.fit(ids, np.ones((4, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    one, other = (ops.convert_to_numpy(m(ids)) for m in (loaded, model))
    assert np.array_equal(one, other)
    assert loaded.layers[2].get_config() == model.layers[2].get_config()


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
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    for skip_masked, inference in ((False, "spread"), (True, "count")):
        layer = kp.RandomizedPositions(
            64, inference=inference, skip_masked=skip_masked
        )
        model = model_of(layer)
        path = tmp_path / "model.tflite"
        kp.export_litert(model, path, max_length=33)
        runner = Interpreter(str(path)).get_signature_runner("serving_default")
        folder = kp.export_saved_model(
            model, tmp_path / "versions", max_length=33
        ).path
        served = tf.saved_model.load(str(folder)).signatures["serving_default"]
        for ids in ([[1, 2, 3]], [[0, 4, 0, 5, 0], [6, 0, 0, 0, 0]]):
            ids = np.array(ids, "int32")
            for run in (runner, served):
                (got,) = run(ids=ids).values()
                np.testing.assert_allclose(got, model(ids), rtol=0, atol=1e-5)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_longer_inputs_are_refused(training, symbolic):
    layer = kp.RandomizedPositions(5, name="where")
    inputs = keras.KerasTensor((2, 6)) if symbolic else np.zeros((2, 6))
    message = (
        r"RandomizedPositions 'where' draws from max_position=5 positions, and "
        r"needs one for each token\. Received: inputs of length 6"
    )
    with pytest.raises(ValueError, match=message):
        layer(inputs, training=training)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"max_position": 2**24 + 1},
            r"`max_position` must be at most 2\*\*24, .*=16777217$",
        ),
    ],
    ids=str,
)
def test_bad_constructions(config, message):
    with pytest.raises(ValueError, match=message):
        kp.RandomizedPositions(**config)


def test_bad_calls():
    layer = kp.RandomizedPositions(9, skip_masked=True)
    with pytest.raises(ValueError, match=r"shape \(batch, seq, ...\)\. Rec"):
        layer(np.zeros(3))
    with pytest.raises(ValueError, match=r"`mask` must have shape \(batch, "):
        layer(np.zeros((3, 6)), mask=MASK[:, :5])
