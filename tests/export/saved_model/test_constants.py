"""SavedModels whose weights are constants of the graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export import frozen
from keras_posenc.export.errors import ExportError
from keras_posenc.export.record import record_path

pytestmark = pytest.mark.tensorflow


def classifier(dtype=None):
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    encoder = kp.TransformerEncoderModel(
        2000,
        d_model=64,
        num_layers=1,
        num_heads=2,
        intermediate_dim=64,
        dtype=dtype,
    )
    pooled = kp.Pooling1D("mean", dtype="float32")(encoder(ids))
    return keras.Model(ids, layers.Dense(3, name="scores")(pooled))


def test_each_is_stored_once_and_compared(tmp_path):
    model = classifier("mixed_bfloat16")
    exported = kp.export_saved_model(
        model, tmp_path, frozen=True, max_length=4, verbose=False
    )
    found = kp.inspect_export(exported.path)
    assert len(found.signatures) == 2
    assert not found.has_variables
    size = 4 * model.count_params()
    # Short ones are within functions.
    assert 0.99 * size < found.weight_bytes < 1.01 * size
    kept = record_path(exported.path).stat().st_size
    assert found.size_bytes - kept < 1.5 * size

    encoder = model.layers[1]
    weight = next(x for x in encoder.weights if x.path.endswith("kernel"))
    value = weight.numpy()
    value[0, 0] += 1e-6  # less than any test input shows
    weight.assign(value)
    report = kp.verify_export(exported.path, model, max_length=4, verbose=False)
    assert not report.passed
    assert report.largest_difference <= report.tolerance
    assert report.different_weights == [weight.path]


class Counter(layers.Layer):
    """A layer with a state, which a call changes."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), trainable=False, name="calls")

    def call(self, x):
        self.calls.assign_add(1.0)
        return x * 2


class Raw(layers.Layer):
    """A layer with a variable of TensorFlow."""

    def build(self, shape):
        self.scale = tf.Variable(np.full(200, 3.0, "float32"), name="scale")

    def call(self, x):
        return x * ops.sum(self.scale)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Counter, r"calls' changes as the model is called"),
        (Raw, r"scale:0' is TensorFlow's own"),
    ],
)
def test_what_cannot_be_a_constant_is_named(tmp_path, layer, message):
    model = keras.Sequential([keras.Input((2,)), layer()])
    with pytest.raises(ExportError, match=message):
        kp.export_saved_model(model, tmp_path, frozen=True, verbose=False)
    assert not list(tmp_path.glob("[0-9]*"))


def test_weights_above_the_limit_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(frozen, "MOST_CONSTANTS", 1000)
    with pytest.raises(ExportError, match=r"at most 1.00 kB, and the weights"):
        kp.export_saved_model(
            classifier(), tmp_path, frozen=True, verbose=False
        )
