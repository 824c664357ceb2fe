"""The names of a classifier's classes, beside their scores."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_posenc as kp
from keras_posenc.export.signatures import labels as labelling
from keras_posenc.export.signatures.resolve import resolve_serving_signatures
from tests.export.files import loaded_file, run_file

pytestmark = pytest.mark.tensorflow

LABELS = ["yes", "no", "vielleicht, später"]


def outputs(model, labels, **options):
    return {
        signature.name: signature.call(
            {
                name: tf.ones([size or 2 for size in spec.shape], spec.dtype)
                for name, spec in signature.specs.items()
            }
        )
        for signature in resolve_serving_signatures(
            model, labels=labels, **options
        )
    }


def test_each_row_has_every_class_in_the_order_of_its_scores(
    text_model, served
):
    texts = np.array(["one two", "seven", ""], dtype=object)
    scores = text_model(tf.constant(texts)).numpy()
    run = loaded_file(served.path)
    answer = run({"text": texts})
    in_python = run.held.serve(tf.constant(texts))
    assert in_python.keys() == {"scores", "classes", "label"}
    np.testing.assert_array_equal(in_python["label"], answer["label"])
    np.testing.assert_allclose(answer["scores"], scores, rtol=0, atol=1e-6)
    for row in answer["classes"]:
        assert [name.decode() for name in row] == LABELS
    winners = [LABELS[place] for place in np.argmax(scores, axis=-1)]
    assert [name.decode() for name in answer["label"]] == winners
    ids = {"ids": [[2, 5, 3]], "lengths": [3]}
    assert run_file(served.path, ids, "from_ids")["classes"].shape == (
        1,
        3,
    )


def test_verification_compares_labels(make, served, tmp_path):
    assert served.report.passed  # with those of the export
    assert served.report.unverified == []
    model, options = make.embedder(), {"max_length": 2, "verbose": False}
    labels = ["a", "b", "c", "d"]
    path = kp.export_saved_model(
        model, tmp_path, labels=labels, verify=False, verbose=False
    ).path
    # Without them, the rest.
    report = kp.verify_export(path, model, **options)
    assert report.passed
    assert report.unverified == [
        f"{signature}/{output}"
        for signature in ("from_ids", "serving_default")
        for output in ("classes", "label")
    ]
    assert str(report).endswith("Give the export's `labels`")
    report = kp.verify_export(path, model, labels=labels[::-1], **options)
    assert not report.passed
    assert "classes[0, 0, 0]" in {case.where for case in report.cases}
    assert "is 'a', the model's 'd'" in report.details()
    assert "`labels`" in str(report)


def two_heads(make):
    inputs = make.ids()
    pooled = kp.Pooling1D("mean")(
        layers.Embedding(50, 4, mask_zero=True)(inputs)
    )
    return keras.Model(
        inputs,
        {"mood": layers.Dense(2)(pooled), "topic": layers.Dense(3)(pooled)},
    )


def test_several_outputs_have_labels_by_name(make):
    found = outputs(two_heads(make), {"topic": ["a", "b", "c"]})
    both = {"mood", "topic", "topic_classes", "topic_label"}
    assert set(found["serving_default"]) == both
    assert found["serving_default"]["topic_classes"].numpy().tolist() == (
        [[b"a", b"b", b"c"]] * 2
    )
    assert set(found["from_ids"]) == both


def test_given_signatures_have_labels_where_they_have_scores(make):
    model = make.classifier()
    given = {"classify": model, "embed": make.embedder()}
    found = outputs(model, ["a", "b", "c"], signatures=given)
    assert set(found["classify"]) == {"scores", "classes", "label"}
    assert set(found["embed"]) == {"vectors"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        *(
            (labels, "`labels` must be a list of strings, none of them empty")
            for labels in ("abc", [], [1, 2, 3], ["a", "", "c"], 7)
        ),
        ({}, "`labels` must name at least one output"),
        ({"mood": "abc"}, "`labels` of 'mood' must be a list of strings"),
        (["a", "b", "a"], "empty or given twice"),
        (
            {"score": ["a", "b", "c"]},
            "`labels` must name each score of 'score', of shape (batch, ..., "
            "scores). Received: 3 labels for mood of shape (None, 2)",
        ),
        (["a", "b"], "Several outputs take, in Python, a dict of"),
    ],
)
def test_labels_that_are_none(make, labels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        outputs(two_heads(make), labels)


def test_two_labels_of_one_score(tmp_path):
    def model(activation):
        layer = layers.Dense(1, activation, name="score")
        return keras.Sequential([keras.Input((1,), name="x"), layer])

    with pytest.raises(ValueError, match="layer 'score' has no activation"):
        outputs(model(None), ["no", "yes"])
    sigmoid = model("sigmoid")
    sigmoid.layers[-1].set_weights([np.eye(1), np.zeros(1)])
    artifact = kp.export_saved_model(
        sigmoid, tmp_path, labels=["no", "yes"], verbose=False
    )
    found = run_file(artifact.path, {"x": [[-1], [0], [1]]})
    assert found["label"].tolist() == [b"no", b"yes", b"yes"]
    assert found["classes"].tolist() == [[b"yes"]] * 3


def test_scores_of_each_token_have_labels(make):
    model = make.embedder()
    (signature, _) = resolve_serving_signatures(model, labels=list("abcd"))
    ids = np.array([[3, 1, 4], [1, 5, 9]], "int32")
    answer = signature.call({"ids": tf.constant(ids)})
    best = np.argmax(model(ids), axis=-1)  # (batch, seq)
    assert len(np.unique(best)) > 1  # else it proves little
    wanted = np.array([b"a", b"b", b"c", b"d"], object)
    np.testing.assert_array_equal(answer["label"], wanted[best])
    assert answer["classes"].shape == (2, 3, 4)
    assert (answer["classes"].numpy() == wanted).all()


def test_label_is_of_the_highest_of_a_files_own_scores():
    # Rounding may order them otherwise than the model's. As TensorFlow has it,
    # the first of several is the highest; what it makes of NaN is not compared.
    scores = np.array([[1, 1 + 1e-6, 0], [1, 1, 1], [0, np.nan, 0]], "float32")
    own = np.array([b"a", b"a", b"c"], object)
    classes, label = labelling.in_numpy(scores, ["a", "b", "c"], own)
    assert label.tolist() == [b"b", b"a", b"c"]
    assert classes.tolist() == [[b"a", b"b", b"c"]] * 3


@pytest.mark.parametrize("output", [0, 1])
def test_labels_of_other_scores_are_refused(
    make, tmp_path, monkeypatch, contents, output
):
    right = labelling.in_tensorflow

    def wrong(scores, names):
        found = [*right(scores, names)]
        found[output] = tf.reverse(found[output], [-1])
        return found

    monkeypatch.setattr(labelling, "in_tensorflow", wrong)
    name = ["classes", "label"][output]
    with pytest.raises(kp.ExportVerificationError, match=f"{name}.* the mod"):
        kp.export_saved_model(
            make.embedder(),
            tmp_path,
            labels=["a", "b", "c", "d"],
            max_length=5,
            verbose=False,
        )
    assert contents(tmp_path) == []


@pytest.mark.parametrize("name", ["a_classes", "a_label"])
def test_output_that_is_there_already(make, name):
    inputs = make.ids()
    vectors = layers.Embedding(50, 4)(inputs)
    scores = layers.GlobalAveragePooling1D()(vectors)
    model = keras.Model(inputs, {"a": scores, name: scores})
    with pytest.raises(ValueError, match=f"the output '{name}', which the"):
        outputs(model, {"a": list("abcd")})
