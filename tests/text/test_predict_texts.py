"""From a list of texts to labels and scores."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from tests.export.conftest import embedder, text_classifier

pytestmark = pytest.mark.tensorflow

LABELS = ["yes", "no", "later"]
TEXTS = ["one two", "seven", "", "three four five six", "no such words"]


@pytest.fixture(scope="module")
def text_model():
    keras.utils.set_random_seed(0)
    return text_classifier()


def test_labels_and_scores_of_each_text(text_model, capsys):
    wanted = text_model(tf.constant(TEXTS)).numpy()
    found = kp.predict_texts(
        text_model, np.array(TEXTS), labels=LABELS, batch_size=2
    )
    assert [set(row) for row in found] == [{"scores", "label", "score"}] * 5
    for row, scores in zip(found, wanted, strict=True):
        # Other batches pad otherwise, which changes the rounding alone.
        np.testing.assert_allclose(row["scores"], scores, rtol=0, atol=1e-6)
        assert row["label"] == LABELS[np.argmax(scores)]
        assert row["score"] == np.max(row["scores"])
        assert type(row["label"]) is str
        assert type(row["score"]) is float
    assert "5/5" in capsys.readouterr().out
    kp.predict_texts(text_model, TEXTS, batch_size=2, verbose=False)
    assert capsys.readouterr().out == ""


def test_model_of_one_column(text_model):
    text = keras.Input((1,), dtype="string", name="text")
    model = keras.Model(text, text_model(text[:, 0]))
    (row,) = kp.predict_texts(model, ["one"])
    (wanted,) = kp.predict_texts(text_model, ["one"])
    np.testing.assert_array_equal([*row.values()], [*wanted.values()])


def test_without_labels(text_model):
    (row,) = kp.predict_texts(text_model, ["one"])
    assert list(row) == ["scores"]
    assert kp.predict_texts(text_model, []) == []


@pytest.fixture(scope="module")
def two_outputs(text_model):
    """Scores of a text, and of each of its tokens."""
    text = keras.Input((), dtype="string", name="text")
    vectors = layers.Embedding(20, 4, mask_zero=True)(
        text_model.layers[0](text)
    )
    outputs = {
        "tags": layers.Dense(2)(vectors),
        "topic": layers.Dense(3)(kp.Pooling1D("mean")(vectors)),
    }
    return keras.Model(text, outputs)


def test_several_outputs(two_outputs):
    labels = {"tags": ["in", "out"], "topic": LABELS}
    texts = ["one", "one two three"]
    found = kp.predict_texts(two_outputs, texts, labels=labels, batch_size=1)
    for row, length in zip(found, (3, 5), strict=True):  # [CLS] and [SEP]
        assert row["tags"].shape == (length, 2)
        assert row["tags_score"].shape == (length,)
        best = np.argmax(row["tags"], axis=-1)
        wanted = np.array(["in", "out"])[best]
        np.testing.assert_array_equal(row["tags_label"], wanted)
        assert row["topic_label"] == LABELS[np.argmax(row["topic"])]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (LABELS, "must be a dict by output, where there are several: tags, t"),
        ({"topic": ["a"]}, "no output 'topic' of shape (batch, ..., 1): tags"),
        ({"other": LABELS}, "`labels` of 'other' are 3, and the model has no"),
    ],
)
def test_labels_that_do_not_fit(two_outputs, labels, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        kp.predict_texts(two_outputs, ["one"], labels=labels)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ("a text", "give a single one as [text]. Received: str"),
        (["a", None], "Received at index 1: NoneType"),
    ],
)
def test_texts_that_are_none(text_model, texts, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        kp.predict_texts(text_model, texts)


def test_arguments_that_are_none(text_model):
    with pytest.raises(ValueError, match=r"which takes int32 \(None, None\)"):
        kp.predict_texts(embedder(), ["a"])
    with pytest.raises(ValueError, match=r"must be a keras\.Model"):
        kp.predict_texts("model.keras", ["a"])
    with pytest.raises(ValueError, match="Received: batch_size=0"):
        kp.predict_texts(text_model, ["a"], batch_size=0)
