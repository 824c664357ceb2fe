"""`serve`: Python calls a SavedModel as it calls those that Keras writes."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow
tf = pytest.importorskip("tensorflow")


# Both copy the same graph: float32 sums of 4 products, in whatever order.
TOLERANCE = 4 * 2.0**-22


def dense(name):
    return layers.Dense(2, name=name)


def chain(a, b):
    return keras.Sequential([a, dense("y")])


def lists(a, b):
    return keras.Model([b, a], [dense("y")(a), dense("z")(b)])


def dicts(a, b):
    return keras.Model(
        {"b": b, "a": a}, {"z": dense("z")(b), "y": dense("y")(a)}
    )


class Called(keras.Model):
    """It knows its input only from having been called."""

    def __init__(self, *_):
        super().__init__()
        self.dense = dense("y")
        self(np.zeros((1, 4), "float32"))

    def call(self, a):
        return self.dense(a)


def given(model):
    rng = np.random.default_rng(0)
    is_single = isinstance(model, keras.Sequential | Called)
    structure = None if is_single else model.input
    return keras.tree.map_structure(
        lambda _: tf.constant(rng.normal(size=(3, 4)), tf.float32), structure
    )


@pytest.mark.parametrize(
    "make",
    [
        chain,
        dicts,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (lists, Called)),
    ],
    ids=lambda m: m.__name__,
)
def test_as_keras_has_it(make, tmp_path):
    model = make(*(keras.Input((4,), name=name) for name in "ab"))
    x = given(model)
    exported = kp.export_saved_model(model, tmp_path / "m", verbose=False)
    assert exported.report.unverified == []
    model.export(tmp_path / "keras", verbose=False)
    loaded = tf.saved_model.load(str(exported.path))
    by_keras = tf.saved_model.load(str(tmp_path / "keras"))
    own, others = loaded.serve(x), by_keras.serve(x)
    tf.nest.assert_same_structure(own, others, check_types=True)
    for found, other in zip(
        tf.nest.flatten(own), tf.nest.flatten(others), strict=True
    ):
        np.testing.assert_allclose(found, other, rtol=0, atol=TOLERANCE)
    report = kp.verify_export(exported.path, model, verbose=False)
    assert report.passed
    assert report.unverified == []


@pytest.mark.slow
def test_of_strings_and_labels(text_model, tmp_path):
    labels = ["yes", "no", "perhaps"]
    path = kp.export_saved_model(
        text_model, tmp_path / "m", labels=labels, max_length=9, verbose=False
    ).path
    loaded = tf.saved_model.load(str(path))
    served = loaded.serve(tf.constant(["one two"]))
    assert served["label"].numpy()[0].decode() in labels
    assert served.keys() == {"scores", "classes", "label"}
    for known in (labels, None):
        report = kp.verify_export(
            path, text_model, labels=known, max_length=9, verbose=False
        )
        assert report.passed, report
        assert not any("serve " in each for each in report.unverified)
