"""What is private to Keras is as `keras_internals` takes it to be.

A failure here names what a new Keras has changed, and what would break by it.
"""

import operator

import keras
import numpy as np
import pytest
from keras import ops

from keras_posenc.keras_internals import (
    alike_shared,
    called_alike,
    forgotten_calls,
    in_function,
    in_one_thread,
    is_compiled_by_xla,
    layer_of,
    lent_values,
    matmul_transposed,
    variable_within,
)


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


@pytest.mark.tensorflow
def test_what_one_thread_runs_is_on_one_device():
    """Else a small generator's file fails where its weights are on a GPU."""
    import tensorflow as tf

    weight = keras.Variable([2.0])

    def halved(x):
        def step(x):
            return [x / weight]

        return tf.while_loop(lambda x: tf.reduce_max(x) > 1.0, step, [x])[0]

    def call_of(function):
        @tf.function(autograph=False)
        def whole(x):
            return in_one_thread(function, [weight], x)

        found = whole(tf.constant([3.0, 8.0]))
        np.testing.assert_array_equal(found, [0.375, 1])
        graph = whole.get_concrete_function(tf.TensorSpec([None])).graph
        (call,) = (x for x in graph.get_operations() if x.type.endswith("Call"))
        return call

    call = call_of(halved)
    assert call.get_attr("executor_type") == b"SINGLE_THREADED_EXECUTOR"
    (x,) = in_function(call, call.graph.inputs[0])
    assert x.graph is not call.graph
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(call.graph.as_graph_def(), name="")
    (other,) = (x for x in imported.get_operations() if x.type.endswith("Call"))
    assert in_function(other, other.inputs[0]) == []
    # Inputs and outputs are where the call is.
    edges = ("Placeholder", "Identity")
    nodes = [x for x in x.graph.get_operations() if x.type not in edges]
    assert {x.device for x in (call, *nodes)} == {"/device:CPU:0"}
    assert "ReadVariableOp" not in {x.type for x in nodes}
    (loop,) = (x for x in nodes if x.type.endswith("While"))
    # As switches and merges, which this executor refuses.
    assert "_lower_using_switch_merge" not in loop.node_def.attr
    # Shared functions wait for another thread, and a server may have none.
    with alike_shared(True):
        assert not call_of(tf.function(halved)).get_attr("executor_type")


class Scaled(keras.layers.Layer):
    def __init__(self, scale):
        super().__init__()
        self._scale = scale

    def call(self, x):
        return x * self._scale


def activations():
    """Functions of one name."""
    for scale in range(3):

        def relu(x, scale=scale):
            return x * scale

        yield relu


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("layers", "calls"),
    [
        ([keras.layers.Dense(2) for _ in range(3)], 2),
        ([keras.layers.Dropout(0.1) for _ in range(3)], 2),
        ([keras.layers.GaussianNoise(0.1) for _ in range(3)], 0),
        ([keras.layers.Dense(2, activation=f) for f in activations()], 0),
        ([keras.layers.LayerNormalization(epsilon=1 + i) for i in range(3)], 0),
        ([keras.layers.Lambda(lambda x, i=i: x * i) for i in range(3)], 0),
        ([Scaled(i) for i in range(3)], 0),
    ],
)
def test_layers_share_a_function_if_only_their_weights_differ(layers, calls):
    """Else one layer's code runs for another, in the file and its reference."""
    import tensorflow as tf

    x = tf.reshape(tf.range(8.0), (2, 2, 2))
    expected = [layer(x) for layer in layers]
    known = {}

    @tf.function(autograph=False)
    def whole(x):
        with alike_shared(True):
            return [
                called_alike(call, each, x, known=known, kind=None)
                for each in layers
            ]

    def call(layer, x):
        return layer(x)

    for one, other in zip(whole(x), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    graph = whole.get_concrete_function(x).graph
    kinds = [each.type for each in graph.get_operations()]
    assert sum(kind.endswith("PartitionedCall") for kind in kinds) == calls


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


def test_calls_of_an_export_are_forgotten():
    """Else a model cannot be saved after an export that cuts it."""
    given = [keras.Input((3,)) for _ in range(2)]
    cut, new = keras.layers.Dense(2)(given[0]), keras.layers.Dense(2)
    outputs = keras.layers.Concatenate()([cut, given[1]])
    layers = [*map(layer_of, [*given, cut, outputs]), new]

    def state():
        return (
            [each._keras_history for each in (*given, cut, outputs)],
            [[*x._inbound_nodes, None, *x._outbound_nodes] for x in layers],
            [x._called for x in layers],
        )

    before = state()
    with forgotten_calls(layers):
        keras.Model([cut, given[1]], [outputs, new(given[1])])
        assert all(map(operator.ne, state(), before))
    assert state() == before


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
