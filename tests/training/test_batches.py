"""Datasets of batches: nothing is lost, and little of them is padding."""

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")

from keras_posenc import training  # noqa: E402


def texts_of(seed, rows):
    """Pairs of up to 8 ids a side, some of none."""
    rng = np.random.default_rng(seed)
    sides = rng.integers(0, 9, (rows, 2))
    return [
        tuple(rng.integers(1, 100, size).tolist() for size in pair)
        for pair in sides
    ]


def pairs_of(texts):
    """A dataset of dicts of two features of their own lengths."""
    source, target = zip(*texts, strict=True)
    return tf.data.Dataset.from_tensor_slices(
        {
            "source": tf.ragged.constant(source, "int32", ragged_rank=1),
            "target": tf.ragged.constant(target, "int32", ragged_rank=1),
        }
    )


def real(row):
    return [int(i) for i in row if i]


@pytest.mark.parametrize("rows", [1, 100])
def test_batches_hold_every_row_once_at_its_boundary(rows):
    texts = [*texts_of(rows, rows), ([], [])]
    boundaries, tokens = [2, 5, 8], 16
    found = []
    for batch in training.batch_by_length(
        pairs_of(texts), boundaries=boundaries, tokens=tokens
    ):
        source, target = batch["source"].numpy(), batch["target"].numpy()
        assert source.shape == target.shape
        rows, width = source.shape
        assert rows * width <= tokens
        below = max([0, *(b for b in boundaries if b < width)])
        assert width in boundaries
        for pair in zip(source, target, strict=True):
            pair = tuple(map(real, pair))
            assert below < max(1, *map(len, pair)) <= width
            found.append(pair)
    assert sorted(found) == sorted((list(a), list(b)) for a, b in texts)


def test_longer_rows_are_refused_or_left_out():
    texts = [([1], [2]), ([1] * 4, [2]), ([1], [2] * 6)]
    options = {"boundaries": [2, 4], "tokens": 4}
    with pytest.raises(tf.errors.InvalidArgumentError, match="has 6 tokens"):
        list(training.batch_by_length(pairs_of(texts), **options))
    batches = training.batch_by_length(
        pairs_of(texts), drop_longer=True, **options
    )
    assert [batch["source"].shape[1] for batch in batches] == [4, 2]


@pytest.mark.parametrize(
    "window", [1, pytest.param(4, marks=pytest.mark.slow), 1000]
)
def test_packed_rows_hold_every_text_in_order(window):
    texts = [*texts_of(window, 60), ([], []), ([1], [])]
    length = 10
    dataset = training.pack_sequences(pairs_of(texts), length, window=window)
    rows = list(dataset.as_numpy_iterator())
    found = []
    for row in rows:
        count = max(row[name]["segment_ids"].max() for name in row)
        for segment in range(1, count + 1):
            pair = []
            for feature in (row["source"], row["target"]):
                own = feature["segment_ids"] == segment
                assert feature["positions"][own].tolist() == [*range(own.sum())]
                pair.append(feature["ids"][own].tolist())
            found.append(tuple(pair))
        for feature in row.values():
            assert feature["ids"].shape == (length,)
            padded = feature["ids"] == 0
            assert not feature["segment_ids"][padded].any()
            assert not feature["positions"][padded].any()
            # Padding behind, and nowhere else.
            assert (np.diff(padded.astype(int)) >= 0).all()
    # Of a text without any token nothing can be found.
    assert [pair for pair in found if any(pair)] == [
        (list(a), list(b)) for a, b in texts if a or b
    ]
    if window == 1000:
        sizes = [max(map(len, pair)) for pair in texts]
        # Two rows that follow each other hold more than one would.
        assert (len(rows) - 1) * length <= 2 * 2 * sum(sizes)


def test_a_tensor_alone_and_a_long_text():
    rows = tf.ragged.constant([[5, 6], [7], [8, 9, 9]])
    dataset = tf.data.Dataset.from_tensor_slices(rows)
    packed = training.pack_sequences(dataset, 3)
    assert packed.element_spec["ids"].shape == (3,)
    assert [row["ids"].tolist() for row in packed.as_numpy_iterator()] == [
        [5, 6, 7],
        [8, 9, 9],
    ]
    with pytest.raises(tf.errors.InvalidArgumentError, match="the 2 tokens"):
        list(training.pack_sequences(dataset, 2))


def test_texts_of_one_length_are_packed():
    """As the rows of an array are: TensorFlow makes nothing ragged of them."""
    dataset = tf.data.Dataset.from_tensor_slices([[5, 6], [7, 8], [9, 9]])
    packed = training.pack_sequences(dataset, 5)
    assert [row["ids"].tolist() for row in packed.as_numpy_iterator()] == [
        [5, 6, 7, 8, 0],
        [9, 9, 0, 0, 0],
    ]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"boundaries": 4, "tokens": 4}, "a sequence of integers.*=4"),
        ({"boundaries": [], "tokens": 4}, "at least one"),
        ({"boundaries": [4, 2], "tokens": 4}, r"increasing.*\[4, 2\]"),
        ({"boundaries": [0, 2], "tokens": 4}, "boundaries=0"),
        ({"boundaries": [2, 8], "tokens": 4}, "last boundary, 8.*tokens=4"),
    ],
)
def test_refuses(options, match):
    rows = tf.data.Dataset.from_tensors([1, 2])
    with pytest.raises(ValueError, match=match):
        training.batch_by_length(rows, **options)


def test_packing_refuses():
    rows = tf.data.Dataset.from_tensors([1, 2])
    with pytest.raises(ValueError, match=r"shape \(any,\)"):
        training.pack_sequences(rows.batch(2), 4)
    with pytest.raises(ValueError, match=r"must be a tf\.data\.Dataset"):
        training.pack_sequences([[1, 2]], 4)
    for wrong in ([[1.5]], [["a"]]):
        rows = tf.data.Dataset.from_tensor_slices(wrong)
        with pytest.raises(ValueError, match="ids of an integer dtype"):
            training.pack_sequences(rows, 4)
