"""Exports and `verify` work on a copy: the caller's model is never touched."""

import functools
import gc
import hashlib
import threading
import time
import tracemalloc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import keras_posenc as kp
from keras_posenc.export.graphs import snapshot as module
from keras_posenc.export.graphs.snapshot import snapshot
from keras_posenc.keras_internals import layers_within

pytestmark = pytest.mark.tensorflow

IDS = np.array([[1, 2, 0], [4, 5, 6]], "int32")


class Parts(keras.Model):
    """Layers in every place where Python can hold them."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(50, 4)
        self.parts = {"a": [layers.Dense(3)], "b": (layers.Dense(4), 1)}
        self.traced = tf.function(self.first)
        self.closure = lambda x: self.parts["b"][0](x)
        self.partial = functools.partial(self.add, by=layers.Dense(4))
        self.weak = weakref.ref(self.embedding)
        self.lookup = tf.Module()
        self.lookup.tables = {"scale": [tf.Variable([2.0, 3.0, 4.0, 5.0])]}
        self.lookup.pair = (tf.Variable(1.0), layers.Dense(4))

    def first(self, x):
        return self.parts["a"][0](x)

    def add(self, x, by):
        return x + by(x)

    @tf.function
    def embed(self, ids):
        return self.weak()(ids)

    def call(self, ids):
        x = self.partial(self.closure(self.traced(self.embed(ids))))
        (scale,) = self.lookup.tables["scale"]
        offset, last = self.lookup.pair
        return last(x * scale + offset)


def shared_and_nested():
    one, two = (keras.Input((4,), name=name) for name in ("one", "two"))
    inner = keras.Input((4,))
    tower = layers.Dense(4, activation="tanh")
    block = keras.Model(inner, [tower(inner), layers.Dropout(0.5)(inner)])
    outputs = {"a": block(one)[0], "b": block(two)[1] + tower(two)}
    hidden = layers.Dense(4)
    outputs["c"] = layers.Lambda(lambda x: hidden(x))(one)
    return keras.Model([one, two], outputs)


def deep():
    x = inputs = keras.Input((2,))
    for _ in range(300):
        x = layers.Identity()(x)
    return keras.Model(inputs, layers.Dense(2)(x))


def quantized():
    model = keras.Sequential([layers.Dense(8), layers.Dense(2)])
    model.build((None, 4))
    for layer in model.layers:  # the model's own warns of its input
        layer.quantize("int8")
    return model


def recurrent():
    x = layers.Embedding(50, 4, mask_zero=True)
    cells = [layers.GRUCell(3), layers.LSTMCell(3)]
    both = layers.Bidirectional(layers.GRU(3, return_sequences=True))
    inputs = keras.Input((None,), dtype="int32")
    return keras.Model(inputs, layers.RNN(cells)(both(x(inputs))))


def hashed():
    text = keras.Input((1,), dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "b"])(text)
    numbers = layers.Normalization(mean=1.0, variance=4.0)(
        ops.cast(ids, "float32")
    )
    return keras.Model(text, layers.Dense(2)(numbers))


FLOATS = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
KINDS = {
    "sequential": ("classifier", IDS),
    "mixed": (lambda make: make.classifier("mixed_float16"), IDS),
    "subclass": (lambda make: Parts(), IDS),
    "functional": (lambda make: shared_and_nested(), [FLOATS, -FLOATS]),
    "deep": (lambda make: deep(), FLOATS[:, :2]),
    "int8": (lambda make: quantized(), FLOATS),
    "recurrent": (lambda make: recurrent(), IDS),
    "strings": (lambda make: hashed(), tf.constant([["a"], ["c"]])),
}


def holdings(model):
    """What each layer of a model has, by identity, and how much of it."""
    found = {}
    for layer in layers_within(model):
        for name, value in vars(layer).items():
            # A list of Python's own does not change its identity as it grows.
            size = len(value) if isinstance(value, list | dict | set) else 0
            found[id(layer), name] = id(value), size
    return found


def bits(model):
    return hashlib.sha256(
        b"".join(ops.convert_to_numpy(v).tobytes() for v in model.variables)
    ).hexdigest()


def flat(outputs):
    return [ops.convert_to_numpy(each) for each in keras.tree.flatten(outputs)]


@pytest.mark.parametrize("kind", KINDS)
def test_copy_answers_alike_and_alone(make, kind):
    build, inputs = KINDS[kind]
    model = make.classifier() if kind == "sequential" else build(make)
    expected = flat(model(inputs))
    before, weights = holdings(model), bits(model)
    (copied,) = snapshot(model)
    own = list(layers_within(model))
    theirs = list(layers_within(copied))
    assert [type(each) for each in theirs] == [type(each) for each in own]
    assert [each.path for each in theirs] == [each.path for each in own]
    for ours, others in (
        (own, theirs),
        (model.variables, copied.variables),
        (model.trainable_variables, copied.trainable_variables),
    ):
        assert len(ours) == len(others)
        assert not {*map(id, ours)} & {*map(id, others)}
    # What the one does, the other does not see.
    for variable in copied.variables:
        variable.assign(ops.zeros_like(variable))
    for layer in theirs:
        layer.trainable = False
    copied(inputs)
    assert bits(model) == weights
    assert holdings(model) == before
    (copied,) = snapshot(model)
    for variable in model.variables:
        variable.assign(ops.zeros_like(variable))
    for got, wanted in zip(flat(copied(inputs)), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_signatures_share_what_they_shared(make):
    model = make.classifier()
    other = keras.Sequential(model.layers[:3])
    one, signatures = snapshot(model, {"a": model, "b": (other, {"ids": (1,)})})
    assert signatures["a"] is one
    assert signatures["b"][0].layers[0] is one.layers[0]
    assert signatures["b"][1] == {"ids": (1,)}


def test_what_cannot_be_copied_is_shared(tmp_path):
    class Freed:
        def __del__(self):
            pass

    class Odd(layers.Layer):
        def __init__(self, file):
            super().__init__()
            self.same = (threading.Lock(), file, (n for n in "ab"), Freed())
            self.table = layers.StringLookup(vocabulary=["a"]).lookup_table
            self.rng = np.random.default_rng(0)
            self.array = np.ones(3)

    with (tmp_path / "f").open("w") as file:
        layer = Odd(file)
        (copied,) = snapshot(layer)
    assert copied.same == layer.same
    assert copied.table is layer.table
    copied.array[0], expected = 2, np.random.default_rng(0).random()
    copied.rng.random()
    assert layer.rng.random() == expected
    assert layer.array[0] == 1


def test_what_a_layer_has_by_weak_reference_alone():
    layer, parent = layers.Dense(2), layers.Dense(2)
    layer.parent = weakref.ref(parent)
    (copied,) = snapshot(layer)
    gc.collect()
    assert copied.parent().name == parent.name
    assert copied.parent() is not parent


def test_layer_that_cannot_be_copied():
    class Numeric(layers.Dense, Exception):
        pass

    model = keras.Sequential([keras.Input((2,)), Numeric(2, name="odd")])
    with pytest.raises(kp.ExportError, match="Numeric 'odd' cannot be copied"):
        snapshot(model)


def test_a_copy_costs_no_memory_until_it_differs():
    model = keras.Sequential([keras.Input((1000,)), layers.Dense(10_000)])
    model.compile("sgd", "mse")
    seconds = []
    for _ in range(3):
        began = time.process_time()
        (copied,) = snapshot(model)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.2
    tracemalloc.start()  # which knows of NumPy's memory, too
    snapshot(model)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**22  # a tenth of the kernel
    (kernel, _), (other, _) = model.weights, copied.weights

    def memory(variable):
        return np.asarray(variable.value.read_value())

    assert np.shares_memory(memory(kernel), memory(other))
    before = other.numpy()
    model.train_on_batch(np.ones((1, 1000)), np.ones((1, 10_000)))
    assert np.any(kernel.numpy() != before)
    np.testing.assert_array_equal(other, before)


def test_weights_are_those_of_one_instant(monkeypatch):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2)])
    model.layers[0].set_weights([np.zeros((2, 2)), np.zeros(2)])
    read, steps = module._read, []

    def torn(variables):
        """A step of a training, between the first variable and the next."""
        values = read(variables)
        if len(steps) < 3:
            steps.append(None)
            for variable in model.weights:
                variable.assign(variable + 1)
            values[1:] = read(variables)[1:]
        return values

    monkeypatch.setattr(module, "_read", torn)
    (copied,) = snapshot(model)
    for each in copied.weights:
        np.testing.assert_array_equal(each, np.full(each.shape, 3))


def test_weights_that_never_rest(monkeypatch):
    variable = keras.Variable(0.0)
    read = module._read

    def restless(variables):
        variable.assign(variable + 1)
        return read(variables)

    monkeypatch.setattr(module, "_read", restless)
    (copied,) = snapshot(variable)
    assert copied.numpy() == variable.numpy() > 2


def test_private_names_of_keras():
    """What a new Keras or TensorFlow may break, with what breaks then.

    Of the tracker: layers of a copy would take their own weights for strange
    ones, and could not be quantized. `_clone`: copies of a `tf.function` would
    keep the weights that the original was traced with.
    """
    layer = layers.Dense(2)
    layer.build((None, 2))
    tracker = layer._tracker
    (copied,) = snapshot(layer)
    stored = copied._tracker.stored_ids
    assert stored.keys() == tracker.config.keys()
    assert stored["trainable_variables"] == {*map(id, copied.weights)}
    copied.quantize("int8")
    assert copied.kernel.dtype == "int8"
    assert layer.kernel.dtype == "float32"
    scale = tf.Variable(2.0)
    function = tf.function(lambda x: x * scale)
    function(1.0)
    (copied,) = snapshot(function)
    scale.assign(3.0)
    assert copied(1.0) == 2.0


def test_build_of_a_copy_is_its_own():
    layer = layers.Dense(2)
    (copied,) = snapshot(layer)
    copied(np.ones((1, 2)))
    assert copied.built
    assert not layer.built


class Guard(layers.Layer):
    """Notes which threads call it, and not its copy."""

    originals, threads = set(), set()

    def call(self, x):
        if id(self) in self.originals:
            self.threads.add(threading.current_thread().name)
        return x


def guarded(policy):
    keras.utils.set_random_seed(3)
    guard = Guard(dtype=policy)
    guard.supports_masking = True
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            # Large enough for a file of int8 to round it.
            layers.Embedding(200, 8, mask_zero=True, dtype=policy),
            kp.PositionalEncoding(dropout=0.1, dtype=policy),
            guard,
            kp.TransformerEncoder(
                1, num_heads=2, intermediate_dim=16, dropout=0.1, dtype=policy
            ),
            kp.MaskedAveragePooling1D(dtype=policy),
            layers.Dense(3, name="scores", dtype=policy),
        ]
    )
    Guard.originals.add(id(guard))
    # XLA takes longer to compile a step than an export lasts.
    model.compile("adam", "mse", jit_compile=False)
    return model


def train(model, goes_on, pause=0.0):
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
        ("mixed_float16", ["int8"]),
        pytest.param(
            None,
            ["saved_model", None, "int8", "int8-static", "onnx"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "mixed_bfloat16", ["saved_model", None], marks=pytest.mark.slow
        ),
    ],
)
def test_training_goes_on_as_if_nothing_were(tmp_path, policy, exports):
    model = guarded(policy)
    train(model, lambda step: step < 1)  # what is traced is traced
    Guard.threads.clear()
    before = holdings(model), bits(model)
    with pytest.raises(kp.ExportError, match="it is not a folder"):
        kp.export_litert(model, "/dev/null/m.tflite", verbose=False)
    assert (holdings(model), bits(model)) == before
    over, found = threading.Event(), []
    thread = threading.Thread(
        target=lambda: found.extend(
            train(model, lambda step: not over.is_set() or step < 3, 0.03)
        ),  # with pauses, or the exports take long
        name="training",
    )
    thread.start()
    try:
        for export in exports:
            options = {"max_length": 5, "verbose": False}
            if export == "saved_model":
                kp.export_saved_model(model, tmp_path / "m", **options)
            elif export == "onnx":
                pytest.importorskip("tf2onnx")
                kp.export_onnx(model, tmp_path / "m.onnx", **options)
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
    assert not Guard.threads
    assert holdings(model) == before[0]
    twin = guarded(policy)
    train(twin, lambda step: step < 1)
    assert train(twin, lambda step: step < len(found)) == found
    assert len(found) > 20
