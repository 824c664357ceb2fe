"""Exports and `verify` leave the caller's model, and all around it, alone."""

import contextlib
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.formats import saved_model as saved_model_module
from keras_posenc.keras_internals import layers_within
from tests.export.files import EXPORTS

pytestmark = pytest.mark.tensorflow

IDS = np.array([[1, 2, 0], [4, 5, 6]], "int32")
FLOATS = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


# ---- Arrangements of layers


class Holder(layers.Layer):
    """Calls what `reach`, made of a layer, makes of it; Keras tracks nothing.

    The layer has its weights already, and no place where Keras looks.
    """

    def __init__(self, reach, **kwargs):
        super().__init__(**kwargs)
        dense = layers.Dense(4)
        dense.build((None, 4))
        self.around = [dense]
        vars(self)["reached"] = reach(dense)

    def call(self, x):
        return self.reached(x)


class Traced:
    """Holds a `tf.function` that was called before."""

    def __init__(self, layer):
        self.layer = layer
        self.function = tf.function(lambda x: layer(x))
        self.function(tf.constant(FLOATS))

    def __call__(self, x):
        return self.function(x)


class Method:
    def __init__(self, layer):
        self.layer = layer
        self(tf.constant(FLOATS))

    @tf.function
    def __call__(self, x):
        return self.inner(x) + 1.0

    @tf.function
    def inner(self, x):
        return self.layer(x)


def module(layer):
    held = tf.Module()
    held.layer, held.scale = layer, tf.Variable([1.0, 2.0, 3.0, 4.0])
    return lambda x: held.layer(x) * held.scale


def concrete(layer):
    function = tf.function(lambda x: layer(x)).get_concrete_function(
        tf.TensorSpec((None, 4))
    )
    return lambda x: function(x)


# How code holds a layer does not matter, as long as Keras reads its variables.
REACHES = {
    "closure": lambda layer: lambda x: layer(x),
    "module": module,
    "traced": Traced,
    "traced_method": Method,
    "concrete": concrete,
}


def all_held():
    """Every way of reaching a layer in one model, an output for each."""
    inputs = keras.Input((4,), name="x")
    outputs = {
        name: Holder(reach, name=name)(inputs)
        for name, reach in REACHES.items()
    }
    return keras.Model(inputs, outputs)


def autoencoder():
    inputs, codes = keras.Input((4,), name="x"), keras.Input((2,), name="c")
    encoder = keras.Model(inputs, layers.Dense(2)(inputs))
    decoder = keras.Model(codes, layers.Dense(4)(codes))
    whole = keras.Model(inputs, decoder(encoder(inputs)))
    return {"serving_default": whole, "code": encoder, "decode": decoder}


class Strict(layers.Dense):
    """Has a `__setattr__` of its own, which takes nothing once it is built.

    Except what Keras, and TensorFlow below it, keep by private names.
    """

    def __setattr__(self, name, value):
        is_private = name.startswith("_") or name == "built"
        if vars(self).get("built") and not is_private:
            raise AttributeError(name)
        super().__setattr__(name, value)


class Normalized(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalization = layers.BatchNormalization()
        self.drop = layers.Dropout(0.5)
        self.parts = {"a": [layers.Dense(3)], "b": (layers.Dense(4), 1)}

    def call(self, x, training=False):
        x = self.drop(self.normalization(x, training=training))
        return self.parts["a"][0](self.parts["b"][0](x))


def subclass():
    model = Normalized()
    model(FLOATS)
    return model


def strict():
    return keras.Sequential([keras.Input((4,), name="x"), Strict(3)])


def recurrent():
    # Of a fixed length, so that there is one signature.
    x = inputs = keras.Input((3,), dtype="int32", name="ids")
    x = layers.Embedding(50, 4, mask_zero=True)(x)
    x = layers.Bidirectional(layers.GRU(3, return_sequences=True))(x)
    x = layers.TimeDistributed(layers.Dense(3))(x)
    return keras.Model(
        inputs, layers.RNN([layers.GRUCell(3), layers.LSTMCell(3)])(x)
    )


def hashed():
    text = keras.Input((1,), dtype="string", name="text")
    ids = layers.StringLookup(vocabulary=["a", "b"])(text)
    return keras.Model(text, layers.Dense(2)(ops.cast(ids, "float32")))


ARRANGEMENTS = {
    "reached": all_held,
    "autoencoder": autoencoder,
    "subclass": subclass,
    "setattr": strict,
    "recurrent": recurrent,
    "strings": hashed,
}


def models_of(arrangement):
    if isinstance(arrangement, dict):
        return arrangement
    return {"serving_default": arrangement}


def inputs_of(model):
    if not getattr(model, "inputs", None):
        return FLOATS
    found = [
        tf.constant([["a"], ["c"]])
        if each.dtype == "string"
        else IDS
        if each.dtype == "int32"
        else FLOATS[:, : each.shape[1]]
        for each in model.inputs
    ]
    return found[0] if len(found) == 1 else found


def variables_of(model):
    """Keras's own, those that it does not track, and TensorFlow's."""
    found = {id(each): each for each in model.variables}
    for layer in layers_within(model):
        for inner in getattr(layer, "around", []):
            found.update({id(each): each for each in inner.variables})
    return list(found.values())


def holdings(model):
    """What each layer has, by identity; how much, and how often traced."""
    found = {}
    for layer in layers_within(model):
        reached = vars(layer).get("reached")
        held = {**vars(layer), **getattr(reached, "__dict__", {})}
        for name, value in held.items():
            size = len(value) if isinstance(value, list | dict | set) else 0
            if hasattr(value, "experimental_get_tracing_count"):
                size = value.experimental_get_tracing_count()
            found[id(layer), name] = id(value), size
    return found


def bits(model):
    return hashlib.sha256(
        b"".join(ops.convert_to_numpy(v).tobytes() for v in variables_of(model))
    ).hexdigest()


def flat(outputs):
    return [ops.convert_to_numpy(each) for each in keras.tree.flatten(outputs)]


def same(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def outputs_of(models):
    return {
        name: flat(model(inputs_of(model))) for name, model in models.items()
    }


def state_of(models):
    return [(holdings(model), bits(model)) for model in models.values()]


def train(models):
    for variable in keras.tree.flatten([*map(variables_of, models.values())]):
        if "float" in variable.dtype:
            variable.assign(variable + 1)


def loaded_outputs(path, models):
    loaded = tf.saved_model.load(str(path))
    found = {}
    for name, model in models.items():
        function = loaded.signatures[name]
        given = inputs_of(model)
        if getattr(model, "inputs", None):
            given = given if isinstance(given, list) else [given]
            names = [each.name for each in model.inputs]
        else:
            names, given = [*function.structured_input_signature[1]], [given]
        tensors = map(tf.constant, given)
        outputs = function(**dict(zip(names, tensors, strict=True)))
        found[name] = [outputs[key].numpy() for key in sorted(outputs)]
    return found


@pytest.mark.parametrize(
    "names",
    [["reached"], [name for name in ARRANGEMENTS if name != "reached"]],
    ids=["reached", "trained"],
)
def test_the_caller_has_what_it_had(names, tmp_path, monkeypatch):
    """Of all arrangements in one export."""
    models = {
        f"{name}_{key}": model
        for name in names
        for key, model in models_of(ARRANGEMENTS[name]()).items()
    }
    expected = outputs_of(models)
    if names != ["reached"]:
        # As another thread would train it, as soon as the export has begun.
        resolve = saved_model_module.resolve_serving_signatures

        def resolve_later(*arguments):
            thread = threading.Thread(target=train, args=[models])
            thread.start()
            thread.join()
            return resolve(*arguments)

        monkeypatch.setattr(
            saved_model_module, "resolve_serving_signatures", resolve_later
        )
        before = None
    else:  # what Keras does not know is copied when the model reads it
        before = state_of(models)
    artifact = kp.export_saved_model(
        next(iter(models.values())),
        tmp_path / "m",
        signatures=models,
        max_length=4,
        verbose=False,
    )
    assert artifact.report.passed
    if before is not None:
        assert state_of(models) == before
        for key, outputs in outputs_of(models).items():
            same(outputs, expected[key])
        train(models)
    # What the caller has traced, and traces now, reads the caller's weights.
    now = outputs_of(models)
    for key, model in models.items():
        assert all(map(np.any, map(np.subtract, now[key], expected[key]))), key
        function = tf.function(lambda x, model=model: model(x))
        given = keras.tree.map_structure(tf.constant, inputs_of(model))
        for one, other in zip(flat(function(given)), now[key], strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-6, atol=1e-6, err_msg=key
            )
    for key, outputs in loaded_outputs(artifact.path, models).items():
        for one, other in zip(outputs, expected[key], strict=True):
            np.testing.assert_allclose(
                one, other, rtol=0, atol=1e-5, err_msg=key
            )


def test_all_exports_and_verify(tmp_path):
    parts = Holder(Method), Holder(concrete), layers.Dropout(0.1), Strict(3)
    model = keras.Sequential([keras.Input((4,), name="x"), *parts])
    models = {"serving_default": model}
    model.compile("adam", "mse", jit_compile=False)
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    before = state_of(models)
    optimizer = [each.numpy() for each in model.optimizer.variables]
    expected = outputs_of(models)
    paths = []
    for export, file in (EXPORTS["litert"], EXPORTS["onnx"]):
        paths.append(export(model, tmp_path / file, verbose=False).path)
        assert kp.verify_export(paths[-1], model, verbose=False).passed
        assert state_of(models) == before
    same(outputs_of(models)["serving_default"], expected["serving_default"])
    same([each.numpy() for each in model.optimizer.variables], optimizer)
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    train(models)
    for path in paths:
        assert not kp.verify_export(path, model, verbose=False).passed


def test_a_model_of_texts_and_numbers_is_saved_afterwards(tmp_path):
    """A LiteRT file is of the model from its ids on."""
    lookup = keras.layers.TextVectorization(vocabulary=["a", "b"])
    text = keras.Input((1,), dtype="string", name="text")
    numbers = keras.Input((2,), name="numbers")
    x = keras.layers.Embedding(4, 3)(lookup(text))
    x = keras.layers.GlobalMaxPooling1D()(x)
    x = keras.layers.Concatenate()([x, numbers])
    model = keras.Model([text, numbers], keras.layers.Dense(2, name="y")(x))
    for _ in range(2):
        exported = kp.export_litert(
            model, tmp_path / "m.tflite", max_length=3, verbose=False
        )
        assert exported.report.passed
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    given = [tf.constant([["a b"], ["c"]]), tf.ones((2, 2))]
    same(flat(loaded(given)), flat(model(given)))


class Watch(threading.Thread):
    """Calls models all the time, and looks at their layers."""

    def __init__(self, models):
        super().__init__()
        self.models, self.over = models, threading.Event()
        self.expected, self.calls, self.errors = self.seen(), 0, []

    def seen(self):
        layers = [x for m in self.models.values() for x in layers_within(m)]
        return (
            [
                each.tobytes()
                for x in outputs_of(self.models).values()
                for each in x
            ],
            [(x.call, x.quantized_call, x.dtype_policy) for x in layers],
            [x.compute_dtype for x in layers],
            [{*vars(x)} for x in layers],
        )

    def run(self):
        while not self.over.wait(0.01):  # a thread that never rests takes half
            self.calls += 1
            if self.seen() != self.expected:
                self.errors.append(self.calls)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def several_kinds():
    """Layers that exports compute in other ways than Keras does."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(50, 4, mask_zero=True, dtype="mixed_bfloat16")(ids)
    x = kp.TransformerEncoder(
        1, num_heads=2, intermediate_dim=8, dtype="mixed_bfloat16"
    )(x)
    return {
        **autoencoder(),
        "int8": quantized(),
        "mixed": keras.Model(ids, x),
    }


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_other_threads_call_the_model_as_it_is(format, tmp_path):
    models = several_kinds()
    if format == "litert":  # which refuses it
        del models["int8"]
    export, name = EXPORTS[format]
    with Watch(models) as watch:
        export(
            models["serving_default"],
            tmp_path / name,
            signatures=models,
            max_length=4,
            verbose=False,
        )
    assert watch.errors == []
    assert watch.calls > 5


def quantized():
    model = keras.Sequential([layers.Dense(8), layers.Dense(2)])
    model.build((None, 4))
    for layer in model.layers:  # the model's own warns of its input
        layer.quantize("int8")
    return model


def test_exports_of_a_mixed_model_in_two_threads(tmp_path):
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(50, 4, mask_zero=True)(ids)
    scores = layers.Dense(3, name="scores", dtype="mixed_bfloat16")
    model = keras.Model(ids, scores(kp.Pooling1D("mean")(x)))
    models = {"serving_default": model}
    before = state_of(models)
    options = {"max_length": 4, "verbose": False}
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(
            kp.export_litert, model, tmp_path / "m.tflite", **options
        )
        two = pool.submit(
            kp.export_saved_model, model, tmp_path / "m", **options
        )
    assert one.result().report.passed
    assert two.result().report.passed
    found = kp.inspect_export(two.result().path).signatures["serving_default"]
    assert str(found["outputs"]["scores"]).startswith("bfloat16")
    assert state_of(models) == before


@pytest.mark.slow
def test_mirrored_variables(tmp_path):
    """A model with a copy of each variable on each device stays as it is."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        inputs = keras.Input((4,), name="x")
        model = keras.Model(inputs, layers.Dense(3)(inputs))
        model.compile("sgd", "mse", jit_compile=False)
    assert type(model.weights[0].value).__name__ == "MirroredVariable"
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    before = [each.numpy() for each in model.variables]
    scopes = strategy.scope(), strategy.scope(), contextlib.nullcontext()
    for scope, (export, file) in zip(scopes, EXPORTS.values(), strict=True):
        with scope:
            export(model, tmp_path / file, verbose=False)
    for one, other in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    assert any(map(np.any, map(np.subtract, before, model.get_weights())))
