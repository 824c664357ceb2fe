"""What is private to Keras is as `keras_internals` takes it to be.

A failure here names what a new Keras has changed, and what would break by it.
"""

import contextlib
import importlib
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.keras_internals import (
    called_for_training,
    carried_mask,
    carry_mask,
    copied,
    forgotten_calls,
    has_tangents,
    in_this_thread_alone,
    is_compiled_by_xla,
    is_exported_by_keras,
    is_in_graph,
    kept_names,
    layer_of,
    layers_within,
    lent_values,
    matmul_transposed,
    ordinary_traces,
    recompute_within_others,
    recomputing_mode,
    separate_traces,
    sources_of,
    traced_once,
    variable_within,
    written_rows,
)
from keras_posenc_worker.convert_litert import _unread
from keras_posenc_worker.formats import unpack
from tests.layers import MaskSeen

IDS = np.array([[3, 4, 0]])


def test_a_mask_is_read_where_keras_puts_it():
    """Else exports with an `encode` signature pool over padding."""
    embedding = keras.layers.Embedding(10, 2, mask_zero=True)
    mask = carried_mask(embedding(IDS))
    assert ops.convert_to_numpy(mask).tolist() == [[True, True, False]]
    assert carried_mask(embedding(keras.Input((None,)))) is not None
    assert carried_mask(ops.zeros((1, 3, 2))) is None


def test_a_mask_is_put_where_keras_reads_it():
    """Else what stands behind a tokenizer attends to padding."""
    x = ops.zeros((1, 3, 2))
    carry_mask(x, ops.convert_to_tensor(IDS != 0))
    assert ops.convert_to_numpy(MaskSeen()(x)).tolist() == [[1, 1, 0]]
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(10, 2)(ids)
    carry_mask(x, ops.not_equal(ids, 0))
    model = keras.Model(ids, MaskSeen()(x))
    assert ops.convert_to_numpy(model(IDS)).tolist() == [[1, 1, 0]]


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_an_export_is_seen_on_the_stack(name):
    """Else Keras's files of exact encodings cannot be loaded, or give NaN."""
    module = importlib.import_module(f"keras.src.export.{name}")
    exporter = getattr(module, f"export_{name}")
    assert exporter.__globals__["__name__"] == module.__name__
    assert not is_exported_by_keras()
    own = {"__name__": module.__name__, "seen": is_exported_by_keras}
    assert eval("seen()", own)


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_tensor_knows_whether_xla_compiles_it(jit_compile):
    """Else XLA compiles blocks whose shapes depend on the padding."""
    import tensorflow as tf

    found = []

    def note(x):
        found.append(is_compiled_by_xla(x))
        return x + 1.0

    inner = tf.function(note, jit_compile=jit_compile)

    @tf.function
    def outer(x):
        note(x)
        return tf.cond(x > 0, lambda: tf.function(inner)(x), lambda: x)

    outer(tf.constant(1.0))
    note(tf.constant(1.0))
    note(ops.ones(()))
    assert found == [False, jit_compile, False, False]


def test_an_error_leaves_no_name_open():
    import tensorflow as tf

    # TensorFlow's own scope stays open, in a graph that is dropped.
    with contextlib.suppress(ValueError), kept_names(), tf.Graph().as_default():
        keras.name_scope("open").__enter__()
        raise ValueError
    assert keras.Variable(0.0, name="free").path == "free"


def test_a_symbolic_tensor_knows_where_it_comes_from():
    """Else no signature is cut where its strings become numbers.

    Also where a layer is shared, whose every call has a past of its own.
    """
    first, second = (keras.Input((4,), name=name) for name in "ab")
    shared = keras.layers.Dense(4)
    one, two = shared(first), shared(second)
    total = keras.layers.Add()([one, two])
    assert isinstance(layer_of(total), keras.layers.Add)
    assert [id(x) for x in sources_of(total)] == [id(one), id(two)]
    for made, source in ((one, first), (two, second)):
        assert layer_of(made) is shared
        assert [id(x) for x in sources_of(made)] == [id(source)]
        assert layer_of(source).name == source.name
        assert sources_of(source) == []


def test_layers_called_for_training_are_known():
    x = keras.Input((4,))
    inner = keras.Model(
        x, keras.layers.Dropout(0.5, name="on")(x, training=True)
    )
    y = keras.layers.Dropout(0.5, name="off")(inner(x))
    assert called_for_training(keras.Model(x, y)) == ["on"]
    assert called_for_training(keras.Sequential([inner])) == ["on"]


def test_layers_are_found_at_any_depth():
    """Else a layer within a layer is exported as it is for training."""
    inner = keras.layers.Dense(2)
    wrapped = keras.layers.TimeDistributed(inner)
    model = keras.Sequential([keras.Input((3, 2)), wrapped])
    found = {id(layer) for layer in layers_within(model)}
    assert {id(model), id(wrapped), id(inner)} <= found


def test_a_layer_knows_the_scope_that_it_was_made_in():
    """Else `keras.RematScope` raises, or computes what is inside twice."""
    names = {"mode": "list_of_layers", "layer_names": ["inner"]}
    with keras.RematScope(**names):
        inner = keras.layers.Dense(2, name="inner")
    assert recomputing_mode(inner) == (names["mode"], names["layer_names"])
    x = ops.ones((1, 3))
    assert inner.rematerialized_call(inner.call, x) != inner.call
    recompute_within_others(inner)
    assert recomputing_mode(inner) == (None, [])
    assert inner.rematerialized_call(inner.call, x) == inner.call


@pytest.mark.tensorflow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_loop_tells_that_xla_compiles_it(jit_compile):
    """Else XLA copies a cache with each token, and computes padding twice."""
    import tensorflow as tf

    told = []

    @tf.function(jit_compile=jit_compile)
    def count(x):
        def step(x):
            told.append(is_compiled_by_xla(x))
            return x + 1

        told.append(is_compiled_by_xla(x))
        return tf.while_loop(lambda x: x < 3, step, [x])[0]

    assert int(count(tf.constant(0))) == 3
    assert len(told) >= 2
    assert set(told) == {jit_compile}
    assert not is_compiled_by_xla(tf.constant(0))


@pytest.mark.tensorflow
def test_a_converter_that_reads_nothing_converts_the_same(tmp_path):
    """Else a LiteRT file takes twice the time, or is not made."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    x = np.linspace(-1, 1, 64, dtype="float32")[np.newaxis]
    module = tf.Module()
    kernel = np.cos(np.arange(4096)).reshape(64, 64).astype("float32")
    module.weight = tf.Variable(kernel)
    function = tf.function(lambda x: {"y": x @ module.weight})
    tf.saved_model.save(
        module,
        str(tmp_path),
        function.get_concrete_function(x=tf.TensorSpec((None, 64))),
    )
    public = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path))
    outputs = []
    for converter in public, _unread(str(tmp_path), ["serving_default"]):
        content = converter.convert()
        run = Interpreter(model_content=content).get_signature_runner()
        outputs.append(run(x=x)["y"])
    np.testing.assert_array_equal(*outputs)
    wanted = x @ kernel
    np.testing.assert_allclose(outputs[0], wanted, atol=64e-6)
    # Its constants follow after the graph.
    unpacked = unpack(content)
    assert not any(
        buffer.data is not None and len(buffer.data) > 100  # metadata
        for buffer in unpacked.buffers
    )
    sizes = [buffer.size or 0 for buffer in unpacked.buffers]
    assert sum(sizes) >= kernel.nbytes


def test_a_variable_holds_what_it_is_lent():
    """Else process 0 saves a model without what other processes hold."""
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    own = ops.convert_to_numpy(layer.kernel).copy()
    ones = ops.ones((3, 2))
    with lent_values([(layer.kernel, ones)]):
        stored = {}
        layer.save_own_variables(stored)
        found = ops.convert_to_numpy(stored["0"])
        np.testing.assert_array_equal(found, ops.convert_to_numpy(ones))
    np.testing.assert_array_equal(ops.convert_to_numpy(layer.kernel), own)


def test_a_scope_replaces_a_variable_but_not_what_is_within_it():
    """Else an export has no way to copy weights while it replaces them."""
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    zeros = ops.zeros((3, 2))
    with keras.StatelessScope(state_mapping=[(layer.kernel, zeros)]):
        assert not np.any(ops.convert_to_numpy(layer.kernel))
        assert np.any(ops.convert_to_numpy(variable_within(layer.kernel)))


def test_calls_are_forgotten():
    """Else each export leaves a graph of its own on the caller's layers."""
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    before = {name: repr(value) for name, value in vars(layer).items()}
    with forgotten_calls([layer]):
        keras.layers.Dense(2)(layer(keras.Input((3,))))
        found = {name: repr(value) for name, value in vars(layer).items()}
        changed = {name for name in found if found[name] != before[name]}
        assert changed == {"_called", "_inbound_nodes", "_outbound_nodes"}
    assert {name: repr(value) for name, value in vars(layer).items()} == before


def test_tensors_belong_to_the_calls_that_made_them():
    """Else a model cannot be saved after an export that cuts it."""
    given = [keras.Input((3,)) for _ in range(2)]
    cut = keras.layers.Dense(2)(given[0])
    outputs = keras.layers.Concatenate()([cut, given[1]])
    layers = [*map(layer_of, given), layer_of(cut), layer_of(outputs)]
    tensors = [*given, cut, outputs]
    before = [each._keras_history for each in tensors]
    with forgotten_calls(layers):
        keras.Model([cut, given[1]], outputs)
        assert [each._keras_history for each in tensors] != before
    assert [each._keras_history for each in tensors] == before


@pytest.mark.tensorflow
def test_layers_compute_otherwise_in_one_thread():
    """Else an export writes what the model does not compute."""
    policies = keras.dtype_policies.DTypePolicyMap(
        default_policy="mixed_bfloat16"
    )
    layer = keras.layers.Dense(2, dtype=policies)
    layer.build((None, 3))
    policy = keras.dtype_policies.DTypePolicy("float32")
    x = ops.ones((1, 3))
    with in_this_thread_alone() as (functions, known):
        functions[id(layer)] = lambda x: x * 0
        known[id(layer)] = policy
        assert layer.compute_dtype == "float32"
        assert not np.any(ops.convert_to_numpy(layer(x)))
        layer(keras.Input((3,)))  # which no function computes
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: layer.compute_dtype).result() == (
                "bfloat16"
            )
            found = pool.submit(lambda: layer(x)).result()
            assert np.any(ops.convert_to_numpy(ops.cast(found, "float32")))
        assert keras.layers.Dense(2).compute_dtype == "float32"
    assert layer.compute_dtype == "bfloat16"
    assert dict(policies) == {}


@pytest.mark.tensorflow
def test_functions_are_traced_apart(tmp_path):
    """Else functions that a model has traced read an export's weights."""
    import tensorflow as tf

    held = [tf.Variable(1.0), tf.Variable(2.0)]

    @tf.function
    def inner():
        return held[0].read_value()

    @tf.function
    def never():
        return inner()

    assert inner() == 1.0
    held.reverse()
    with separate_traces():
        assert inner() == 2.0
        assert never() == 2.0
        with ordinary_traces():
            assert inner() == 1.0
            module = tf.Module()
            module.variable = held[0]
            tf.saved_model.save(module, str(tmp_path))
        assert inner() == 2.0
    assert inner() == 1.0
    assert inner.experimental_get_tracing_count() == 1
    assert never.experimental_get_tracing_count() == 0


@pytest.mark.tensorflow
def test_a_function_is_traced_once_for_all_calls():
    """And computes the same, with gradients, as the function itself."""
    import tensorflow as tf

    runs = []

    def double(x, y):
        runs.append(None)
        return 2 * x * y

    @tf.function(autograph=False)
    def in_graph(x):
        known = {}
        y = traced_once(double, x, x, known=known, key=("double",))
        y = traced_once(double, y, x, known=known, key=("double",))
        return traced_once(double, y, x, known=known, key=("other",))

    with tf.GradientTape() as tape:
        x = tf.constant([1.0, 2.0])
        tape.watch(x)
        found = in_graph(x)
    assert len(runs) == 2  # one for each key
    np.testing.assert_array_equal(found, [8.0, 128.0])  # 8 x^4
    np.testing.assert_array_equal(tape.gradient(found, x), [32.0, 256.0])
    np.testing.assert_array_equal(
        traced_once(double, x, x, known={}, key=()), [2.0, 8.0]
    )
    assert len(runs) == 3  # outside of graphs each time


@pytest.mark.tensorflow
def test_rows_are_written_in_memory_of_their_own():
    import tensorflow as tf

    zeros = tf.zeros((3, 2))

    @tf.function
    def fill(new):
        assert is_in_graph(new)
        _, filled = tf.while_loop(
            lambda step, _: step < 3,
            lambda step, x: (step + 1, written_rows(x, step[None], new)),
            (tf.constant(0), copied(zeros)),
        )
        return filled

    for number in 1.0, 2.0:
        np.testing.assert_array_equal(fill(tf.fill((1, 2), number)), number)
    np.testing.assert_array_equal(zeros, 0)  # not what was copied
    assert not is_in_graph(zeros)


@pytest.mark.tensorflow
def test_a_product_reads_a_transposed_matrix_as_it_is():
    import tensorflow as tf

    x, y = np.ones((2, 1, 3), "float32"), np.ones((2, 4, 3), "float32")
    found = tf.function(matmul_transposed)
    names = {
        each.type
        for each in found.get_concrete_function(x, y).graph.get_operations()
    }
    assert "Transpose" not in names
    np.testing.assert_array_equal(found(x, y), np.full((2, 1, 4), 3))


@pytest.mark.tensorflow
def test_what_a_forward_accumulator_follows():
    import tensorflow as tf

    x = tf.constant([1.0, 2.0])
    assert not has_tangents(x)
    with tf.autodiff.ForwardAccumulator(x, tf.ones(2)):
        assert has_tangents(tf.zeros(2), 2 * x)
        assert not has_tangents(tf.zeros(2))
