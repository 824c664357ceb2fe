"""Models whose outputs change by being run, which no file can reproduce."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.graphs import writing
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

    def call(self, x, noise=1.0):
        drawn = keras.random.normal(ops.shape(x), seed=self.seed_generator)
        return x + noise * drawn


def stateful():
    return layers.LSTM(3, stateful=True, return_sequences=True)


def model_of(layer):
    inputs = keras.Input((5, 4), batch_size=1, name="x")
    return keras.Model(inputs, layer(layers.Dense(4)(inputs)), name="m")


@pytest.mark.parametrize("make", [stateful, Counting, Noisy])
def test_cause_is_the_model(make):
    model = model_of(make())
    before = [np.copy(each) for each in model.variables]
    probes = Probes.fit(resolve_signatures(model))
    match = r"'m' changes from run to run: for the .* stateful=False"
    with pytest.raises(kp.ExportVerificationError, match=match):
        compute_reference(probes)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_layer_may_be_noisy_in_one_signature_alone():
    x, noisy = keras.Input((5, 4), name="x"), Noisy()
    models = {
        name: keras.Model(x, noisy(x, noise=noise))
        for name, noise in (("serving_default", 0.0), ("noisy", 1.0))
    }
    resolved = resolve_signatures(models["serving_default"], models)
    with pytest.raises(kp.ExportVerificationError, match="from run to run"):
        compute_reference(Probes.fit(resolved))


def test_state_in_python_is_named(tmp_path, contents):
    """A graph holds one state, and the file's graph another one."""
    calls = itertools.count()
    model = model_of(layers.Lambda(lambda x: x + float(next(calls))))
    match = r"Model 'm' called directly, `model\(x\)`, gives other outputs"
    with pytest.raises(kp.ExportVerificationError, match=match):
        kp.export_litert(model, tmp_path / "a.tflite", verbose=False)
    assert contents(tmp_path) == []


def test_what_reaches_no_output_may_change(tmp_path, monkeypatch):
    """Keras's augmentation counts draws also where it does not use them."""
    inputs = keras.Input((8, 8, 3), name="x")
    x = layers.MixUp(seed=0)(layers.RandomGrayscale(0.5, seed=0)(inputs))
    x = Counting(0.0)(x)
    model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(x)))
    seeds = [each for each in model.variables if "seed" in each.path]
    before = [np.copy(each) for each in seeds]
    model(np.zeros((1, 8, 8, 3), "float32"))
    assert not np.array_equal(before, [np.copy(each) for each in seeds])
    traced, trace = [], writing.trace
    monkeypatch.setattr(
        writing, "trace", lambda x: traced.append(x) or trace(x)
    )
    path = kp.export_litert(model, tmp_path / "a.tflite", verbose=False).path
    assert len(traced) == 1  # as each graph for a converter is a new one
    assert kp.verify_export(path, model, verbose=False).passed
