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


def dicts(a, b):
    return keras.Model(
        {"b": b, "a": a}, {"z": dense("z")(b), "y": dense("y")(a)}
    )


def given(model):
    rng = np.random.default_rng(0)
    structure = None if isinstance(model, keras.Sequential) else model.input
    return keras.tree.map_structure(
        lambda _: tf.constant(rng.normal(size=(3, 4)), tf.float32), structure
    )


@pytest.mark.parametrize("make", [chain, dicts])
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
