"""Models whose outputs change by being run, which no file can reproduce."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.probes.generate import Probes
from keras_posenc.export.probes.reference import compute_reference
from keras_posenc.export.signatures.resolve import resolve_signatures

pytestmark = pytest.mark.tensorflow


class Counting(layers.Layer):
    """Adds how often it was called, times a weight, or only counts it."""

    def __init__(self, times=1.0):
        super().__init__(name="counting")
        self.times = times
        self.count = self.add_weight(trainable=False, name="count")

    def call(self, x):
        self.count.assign_add(1.0)
        return x + self.count * self.times if self.times else x + 1.0


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


def model_of(layer):
    inputs = keras.Input((5, 4), batch_size=1, name="x")
    return keras.Model(inputs, layer(layers.Dense(4)(inputs)), name="m")


@pytest.mark.parametrize("make", [stateful, Counting, Noisy])
def test_cause_is_the_model(make):
    model = model_of(make())
    before = [np.copy(each) for each in model.variables]
    probes = Probes.fit(resolve_signatures(model))
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"'m' changes from run to run: for the .* stateful=False",
    ):
        compute_reference(probes)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_state_in_python_is_named(tmp_path, contents):
    """A graph holds one state, and the file's graph another one."""
    model = model_of(counting_in_python())
    with pytest.raises(
        kp.ExportVerificationError,
        match=r"Model 'm' called directly, `model\(x\)`, gives other outputs",
    ):
        kp.export_litert(model, tmp_path / "a.tflite", verbose=False)
    assert contents(tmp_path) == []


def test_what_reaches_no_output_may_change(tmp_path):
    """Keras's augmentation counts draws also where it does not use them."""
    inputs = keras.Input((8, 8, 3), name="x")
    x = layers.MixUp(seed=0)(layers.RandomGrayscale(0.5, seed=0)(inputs))
    x = Counting(0.0)(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))
    seeds = [each for each in model.variables if "seed" in each.path]
    before = [np.copy(each) for each in seeds]
    model(np.zeros((1, 8, 8, 3), "float32"))
    assert any(
        not np.array_equal(one, other)
        for one, other in zip(before, map(np.copy, seeds), strict=True)
    )
    path = kp.export_litert(model, tmp_path / "a.tflite", verbose=False).path
    assert kp.verify_export(path, model, verbose=False).passed
