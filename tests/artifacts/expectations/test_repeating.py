"""Models whose outputs change by being run, which no file can reproduce."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow


class Counting(layers.Layer):
    """Adds how often it was called, or only counts it."""

    def __init__(self, is_added=True):
        super().__init__(name="counting")
        self.is_added = is_added
        self.count = self.add_weight(trainable=False, name="count")

    def call(self, x):
        self.count.assign_add(1.0)
        return x + self.count if self.is_added else x + 1.0


class Noisy(layers.Layer):
    def __init__(self):
        super().__init__(name="noisy")
        self.seed_generator = keras.random.SeedGenerator(0)

    def call(self, x):
        return x + keras.random.normal(ops.shape(x), seed=self.seed_generator)


def stateful():
    return layers.LSTM(3, stateful=True, return_sequences=True, name="lstm")


def counting_in_python():
    calls = itertools.count()
    return layers.Lambda(lambda x: x + float(next(calls)), name="python")


CAUSES = {
    "lstm": (stateful, "Layer 'lstm' (LSTM) is stateful"),
    "counting": (
        Counting,
        "'counting' (Counting) changes its variable 'count'",
    ),
    "counted": (lambda: Counting(False), "a variable has another value"),
    "noisy": (Noisy, "Layer 'noisy' (Noisy) changes its variable"),
    "python": (counting_in_python, "None of its variables changed"),
}


def model_of(layer):
    inputs = keras.Input((5, 4), batch_size=1, name="x")
    return keras.Model(inputs, layer(layers.Dense(4)(inputs)), name="m")


def refused(run, cause):
    with pytest.raises(kp.ExportVerificationError) as caught:
        run()
    message = str(caught.value)
    assert message.startswith("Model 'm' changes by being run: on the same x ")
    assert cause in message
    assert "stateful=False" in message


@pytest.mark.parametrize(
    ("kind", "function", "name"),
    [
        *((kind, kp.export_litert, "a.tflite") for kind in CAUSES),
        ("noisy", kp.export_saved_model, "a"),
        ("noisy", kp.export_onnx, "a.onnx"),
    ],
)
def test_cause_is_the_model(kind, function, name, tmp_path, contents):
    make, cause = CAUSES[kind]
    model = model_of(make())
    before = [np.copy(each) for each in model.variables]
    refused(lambda: function(model, tmp_path / name, verbose=False), cause)
    assert contents(tmp_path) == []
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_verify_says_so_too(tmp_path):
    model = model_of(Counting())
    path = tmp_path / "a.tflite"
    kp.export_litert(model, path, verify=False, verbose=False)
    refused(lambda: kp.verify(model, path, verbose=False), "'counting'")
