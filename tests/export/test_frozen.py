"""Exports and `verify` leave the caller's model, and all around it, alone."""

import hashlib
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.formats import saved_model as saved_model_module
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.keras_internals import layers_within
from tests.export.files import EXPORTS
from tests.generation.toy import SIZES, shaken

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
    """Holds a `tf.function`; `calls` is how often it was called before."""

    def __init__(self, layer, calls=1, **options):
        self.layer = layer
        self.function = tf.function(lambda x: layer(x), **options)
        for _ in range(calls):
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


def bare(layer):
    scale = tf.Variable(np.full(4, 2.0, "float32"))
    return lambda x: layer(x) * scale


# How code holds a layer does not matter, as long as Keras reads its variables.
REACHES = {
    "closure": lambda layer: lambda x: layer(x),
    "module": module,
    "variable": bare,
    "traced": Traced,
    "never traced": lambda layer: Traced(layer, 0),
    "traced method": Method,
    "traced with a signature": lambda layer: Traced(
        layer, input_signature=[tf.TensorSpec((None, 4))]
    ),
    "concrete": concrete,
}


def held(name):
    inputs = keras.Input((4,), name="x")
    return keras.Model(inputs, Holder(REACHES[name])(inputs))


def all_held():
    """Every way of reaching a layer in one model, an output for each."""
    inputs = keras.Input((4,), name="x")
    names = {name.replace(" ", "_"): name for name in REACHES}
    outputs = {
        key: Holder(REACHES[name], name=key)(inputs)
        for key, name in names.items()
    }
    return keras.Model(inputs, outputs)


def siamese():
    inputs = [keras.Input((4,), name=name) for name in ("one", "two")]
    inner = keras.Input((4,))
    tower = keras.Model(inner, layers.Dense(4, activation="tanh")(inner))
    return keras.Model(inputs, layers.Dot(1)([tower(x) for x in inputs]))


def autoencoder():
    inputs, codes = keras.Input((4,), name="x"), keras.Input((2,), name="c")
    encoder = keras.Model(inputs, layers.Dense(2)(inputs))
    decoder = keras.Model(codes, layers.Dense(4)(codes))
    whole = keras.Model(inputs, decoder(encoder(inputs)))
    return {"serving_default": whole, "code": encoder, "decode": decoder}


def sharing():
    shared = layers.Dense(4)
    parts = [
        keras.Sequential([keras.Input((4,)), shared, layers.Dense(4)])
        for _ in range(2)
    ]
    return keras.Sequential([keras.Input((4,), name="x"), *parts])


def several():
    inputs = keras.Input((4,), name="x")
    hidden = layers.Dense(4)(inputs)
    heads = [keras.Model(inputs, layers.Dense(2)(hidden)) for _ in range(3)]
    return dict(zip(("serving_default", "b", "c"), heads, strict=True))


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
    "siamese": siamese,
    "autoencoder": autoencoder,
    "sharing": sharing,
    "several": several,
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


# Files of LiteRT are tried with int8 layers, below.
@pytest.mark.parametrize(
    "format",
    ["saved_model", pytest.param("litert", marks=pytest.mark.slow), "onnx"],
)
def test_all_exports_and_verify(format, tmp_path):
    model = held("traced method")
    keras_model = keras.Sequential([model, Strict(3)])
    models = {"serving_default": keras_model}
    keras_model.compile("adam", "mse", jit_compile=False)
    keras_model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    before = state_of(models)
    optimizer = [each.numpy() for each in keras_model.optimizer.variables]
    expected = outputs_of(models)
    if format == "onnx":
        pytest.importorskip("tf2onnx")
    export, name = EXPORTS[format]
    artifact = export(keras_model, tmp_path / name, verbose=False)
    assert kp.verify_export(artifact.path, keras_model, verbose=False).passed
    assert state_of(models) == before
    same(outputs_of(models)["serving_default"], expected["serving_default"])
    same([each.numpy() for each in keras_model.optimizer.variables], optimizer)
    keras_model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    (traced,) = [
        vars(layer)["reached"]
        for layer in layers_within(model)
        if "reached" in vars(layer)
    ]
    wanted = traced.layer(FLOATS) + 1.0
    np.testing.assert_allclose(traced(tf.constant(FLOATS)), wanted, atol=1e-6)


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


@pytest.mark.parametrize("name", ["concrete", "traced"])
def test_functions_of_the_user_in_onnx(name, tmp_path):
    pytest.importorskip("tf2onnx")
    model = held(name)
    models = {"serving_default": model}
    expected, before = outputs_of(models), state_of(models)
    path = kp.export_onnx(model, tmp_path / "m.onnx", verbose=False).path
    assert state_of(models) == before
    same(outputs_of(models)["serving_default"], expected["serving_default"])
    train(models)
    assert not kp.verify_export(path, model, verbose=False).passed


def test_the_caller_saves_its_functions_afterwards(tmp_path):
    model = held("traced method")
    kp.export_saved_model(model, tmp_path / "m", verbose=False)
    module = tf.Module()
    (layer,) = [each for each in model.layers if "reached" in vars(each)]
    module.variables_ = [each.value for each in variables_of(model)]
    module.function = vars(layer)["reached"].inner
    tf.saved_model.save(module, str(tmp_path / "own"))
    loaded = tf.saved_model.load(str(tmp_path / "own"))
    wanted = vars(layer)["reached"].layer(FLOATS)
    same([loaded.function(tf.constant(FLOATS)).numpy()], [wanted.numpy()])


def several_kinds():
    """Layers that exports compute in other ways than Keras does."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(50, 4, mask_zero=True, dtype="mixed_bfloat16")(ids)
    x = kp.TransformerEncoder(
        1, num_heads=2, intermediate_dim=8, dtype="mixed_bfloat16"
    )(x)
    steps = layers.TimeDistributed(layers.Dense(3))(ops.cast(x, "float32"))
    return {
        "serving_default": keras.Model(ids, x),
        "int8": quantized(),
        "steps": keras.Model(ids, steps),
    }


@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_layers_that_are_computed_otherwise(format, tmp_path):
    export, name = EXPORTS[format]
    models = several_kinds()
    expected, before = outputs_of(models), state_of(models)
    export(
        models["serving_default"],
        tmp_path / name,
        signatures=models,
        max_length=4,
        verbose=False,
    )
    assert state_of(models) == before
    for key, outputs in outputs_of(models).items():
        same(outputs, expected[key])


def test_a_copy_costs_no_memory_until_it_differs():
    model = keras.Sequential([keras.Input((1000,)), layers.Dense(10_000)])
    model.compile("sgd", "mse")
    FrozenModel(model)
    tracemalloc.start()  # which knows of NumPy's memory, too
    with FrozenModel(model) as frozen:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        kernel = model.weights[0]
        copied = frozen.own(kernel)

        def memory(variable):
            return np.asarray(variable.read_value())

        assert np.shares_memory(memory(copied), memory(kernel._value))
    assert peak < 2**22  # a tenth of the kernel
    assert copied.read_value().shape == (0,)  # it is freed


class Late(layers.Layer):
    """A layer that is built as its second call finds it."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4, name="late")
        self.begun = False

    def build(self, shape):
        self.built = True

    def call(self, x):
        if self.begun:
            return self.dense(x)
        self.begun = True
        return x


def test_a_layer_without_weights_is_refused_in_words(tmp_path):
    inputs = keras.Input((4,), name="x")
    model = keras.Model(inputs, Late()(inputs))
    with pytest.raises(
        kp.ExportError, match=r"is made only as its layer is called.*model\(x\)"
    ):
        kp.export_saved_model(model, tmp_path / "m", verbose=False)


def quantized():
    model = keras.Sequential([layers.Dense(8), layers.Dense(2)])
    model.build((None, 4))
    for layer in model.layers:  # the model's own warns of its input
        layer.quantize("int8")
    return model


def test_generators(tmp_path):
    sizes = {**SIZES, "num_layers": 1}
    made = kp.Generator(
        shaken(kp.TransformerDecoderModel(12, **sizes)),
        max_length=5,
        start_id=2,
        end_ids=3,
        beams=2,
    )
    models = {"serving_default": made}
    expected = flat(made(IDS))
    made.offered_signatures()  # which it makes once
    before = state_of(models)
    # A SavedModel is written on the way to this file.
    path = tmp_path / "m.tflite"
    kp.export_litert(made, path, verify=False, verbose=False)
    assert state_of(models) == before
    same(flat(made(IDS)), expected)


def test_exports_of_a_mixed_model_in_two_threads(tmp_path):
    policy = "mixed_bfloat16"
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(50, 4, mask_zero=True, dtype=policy),
            kp.Pooling1D("mean", dtype=policy),
            layers.Dense(3, name="scores", dtype=policy),
        ]
    )
    model(IDS)
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
    (signature,) = [
        each
        for each in kp.inspect_export(two.result().path).signatures.values()
        if "scores" in each["outputs"]
    ][:1]
    assert str(signature["outputs"]["scores"]).startswith("bfloat16")
    assert state_of(models) == before


def export_mirrored(devices, folder):
    """A model with a copy of each variable on each device stays as it is."""
    strategy = tf.distribute.MirroredStrategy(devices)
    with strategy.scope():
        inputs = keras.Input((4,), name="x")
        model = keras.Model(inputs, layers.Dense(3)(inputs))
        model.compile("sgd", "mse", jit_compile=False)
    kind = type(model.weights[0].value).__name__
    assert kind == "MirroredVariable", kind
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    before = [each.numpy() for each in model.variables]
    options = {"verbose": False}
    assert kp.export_saved_model(model, folder / "m", **options).report.passed
    kp.export_litert(model, folder / "m.tflite", verify=False, **options)
    with strategy.scope():
        kp.export_saved_model(model, folder / "scope", **options)
        kp.export_litert(model, folder / "scope.tflite", **options)
        kp.export_onnx(model, folder / "scope.onnx", **options)
    for one, other in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(one, other)
    model.fit(FLOATS, FLOATS[:, :3], verbose=0)
    assert any(map(np.any, map(np.subtract, before, model.get_weights())))


def test_mirrored_variables(tmp_path):
    export_mirrored(["CPU:0"], tmp_path)


@pytest.mark.slow
def test_mirrored_variables_on_two_devices(tmp_path):
    """In another process: devices are chosen before TensorFlow looks."""
    code = """
import pathlib, sys, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
both = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, both)
from tests.export.test_frozen import export_mirrored
export_mirrored(["CPU:0", "CPU:1"], pathlib.Path(sys.argv[1]))
"""
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
    )


# ---- A training in another thread


def trained(policy):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            layers.Embedding(200, 8, mask_zero=True, dtype=policy),
            kp.PositionalEncoding(dropout=0.1, dtype=policy),
            kp.TransformerEncoder(
                1, num_heads=2, intermediate_dim=16, dropout=0.1, dtype=policy
            ),
            kp.Pooling1D("mean", dtype=policy),
            layers.Dense(3, name="scores", dtype=policy),
        ]
    )
    # XLA takes longer to compile a step than an export lasts.
    model.compile("adam", "mse", jit_compile=False)
    return model


def steps(model, goes_on, pause=0.0):
    """The bits of all variables after each step."""
    rng = np.random.default_rng(0)
    found = []
    while goes_on(len(found)):
        x = rng.integers(1, 50, (4, 7)).astype("int32")
        model.train_on_batch(x, rng.normal(size=(4, 3)))
        found.append(bits(model))
        time.sleep(pause)
    return found


@pytest.mark.parametrize(
    ("policy", "exports"),
    [
        (None, [None]),
        pytest.param(
            None,
            ["saved_model", "onnx", "int8", "int8-static"],
            marks=pytest.mark.slow,
        ),
        pytest.param("mixed_bfloat16", ["saved_model"], marks=pytest.mark.slow),
    ],
)
def test_training_goes_on_as_if_nothing_were(tmp_path, policy, exports):
    model = trained(policy)
    steps(model, lambda step: step < 1)  # what is traced is traced
    before = holdings(model), bits(model)
    with pytest.raises(kp.ExportError, match="it is not a folder"):
        kp.export_litert(model, "/dev/null/m.tflite", verbose=False)
    assert (holdings(model), bits(model)) == before
    over, found = threading.Event(), []
    thread = threading.Thread(
        target=lambda: found.extend(
            steps(model, lambda step: not over.is_set() or step < 3, 0.02)
        ),  # with pauses, or the exports take long
    )
    thread.start()
    try:
        for export in exports:
            options = {"max_length": 5, "verbose": False}
            if export == "saved_model":
                kp.export_saved_model(model, tmp_path / "m", **options)
            elif export == "onnx":
                pytest.importorskip("tf2onnx")
                path = tmp_path / "m.onnx"
                kp.export_onnx(model, path, verify=False, **options)
            else:
                static = export == "int8-static"
                kp.export_litert(
                    model,
                    tmp_path / f"{export}.tflite",
                    quantization=export,
                    representative=IDS if static else None,
                    **options,
                )
    finally:
        over.set()
        thread.join()
    assert holdings(model) == before[0]
    twin = trained(policy)
    steps(twin, lambda step: step < 1)
    assert steps(twin, lambda step: step < len(found)) == found
    assert len(found) > 10
