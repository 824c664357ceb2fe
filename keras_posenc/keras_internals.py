"""Everything that uses what is private to Keras or TensorFlow.

No other file may. Keras has no public way to read or write a tensor's mask
outside a layer, to learn which layer made a symbolic tensor and who compiles
it, or to give a variable of several processes a value of one. Each function
here has its own test, which fails when Keras or TensorFlow changes the name.

TensorFlow's own functions are here too, where layers need them: no layer
imports TensorFlow.
"""

import contextlib
import contextvars
import gc
import json
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_STATE, _NAMES = "keras.src.backend.common.global_state", "name_scope_stack"
_TARGET = contextvars.ContextVar[str | None]("format", default=None)
_SHARES = contextvars.ContextVar("shares", default=False)


def carried_mask(tensor: Any) -> Any:
    """Returns the mask that a tensor carries between layers, or None."""
    return getattr(tensor, "_keras_mask", None)


def carry_mask(tensor: Any, mask: Any) -> None:
    """Attaches a mask to a tensor, as a layer's `compute_mask` would."""
    tensor._keras_mask = mask


def layer_of(tensor: Any) -> Any:
    """Returns the layer, or other operation, that made a symbolic tensor."""
    return tensor._keras_history.operation


def sources_of(tensor: Any) -> list[Any]:
    """Returns the symbolic tensors that this operation made it from."""
    history = tensor._keras_history
    node = history.operation._inbound_nodes[history.node_index]
    return list(node.input_tensors)


def read_by(layer: Any) -> list[Any]:
    """Returns the symbolic tensors that a layer has been called on."""
    return [
        each for node in layer._inbound_nodes for each in node.input_tensors
    ]


def layers_within(layer: Any) -> Iterator[Any]:
    """Yields a layer or model and all layers inside it, at any depth."""
    yield from layer._flatten_layers()


def is_in_graph(tensor: Any) -> bool:
    """Returns whether a tensor belongs to a graph of TensorFlow."""
    import keras

    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.is_symbolic_tensor(tensor))


def in_function(node: Any, tensor: Any) -> list[Any]:
    """Returns what an input of a graph's call is in the function called.

    That is nothing where Python does not know the function's graph, as of
    imported ones.
    """
    function = node.graph._get_function(node.get_attr("f").name)
    graph = getattr(function, "graph", None)
    if graph is None:
        return []
    pairs = zip(node.inputs, graph.inputs, strict=True)
    return [own for given, own in pairs if given is tensor]


def is_compiled_by_xla(tensor: Any) -> bool:
    """Returns whether XLA compiles the graph that a tensor belongs to."""
    graph = getattr(tensor, "graph", None)  # of a loop; then those around it
    while graph is not None:
        flow = graph._get_control_flow_context()
        while flow is not None:
            if flow.IsXLAContext():
                return True
            flow = flow.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def has_static_shapes() -> bool:
    """Returns whether each shape must follow from those of the inputs.

    LiteRT's fast kernels need that, and files of ONNX have it too. Elsewhere
    shapes may depend on the values of masks, as where padding is skipped.
    """
    return _TARGET.get() is not None


def is_exported_to(format: str) -> bool:
    """Returns whether this thread exports to a format."""
    return _TARGET.get() == format


@contextlib.contextmanager
def exporting_to(format: str) -> Iterator[None]:
    """A scope in which this thread exports to "litert" or "onnx"."""
    token = _TARGET.set(format)
    try:
        yield
    finally:
        _TARGET.reset(token)


@contextlib.contextmanager
def lent_values(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Gives variables other values, and takes them back at the end."""
    own = [variable._value for variable, _ in pairs]
    try:
        for variable, value in pairs:
            variable._value = value
        yield
    finally:
        for (variable, _), value in zip(pairs, own, strict=True):
            variable._value = value


def variable_within(variable: Any) -> Any:
    """Returns the backend's variable, also in a `StatelessScope`, or None."""
    return variable._value


@contextlib.contextmanager
def forgotten_calls(operations: Sequence[Any]) -> Iterator[None]:
    """Restores, at the end, whether and how operations were called.

    Each call, and each model made of their tensors, adds nodes to them.
    """
    nodes = [
        (found, len(found))
        for each in operations
        for found in (each._inbound_nodes, each._outbound_nodes)
    ]
    histories = [
        (tensor, tensor._keras_history)
        for each in operations
        for node in each._inbound_nodes
        for tensor in node.output_tensors
    ]
    called = [
        (vars(each), each._called)
        for each in operations
        if "_called" in vars(each)
    ]
    try:
        yield
    finally:
        for found, count in nodes:
            del found[count:]
        for tensor, history in histories:
            tensor._keras_history = history
        for attributes, value in called:
            attributes["_called"] = value


@contextlib.contextmanager
def kept_names() -> Iterator[None]:
    """Ends the scopes of names that an error of Keras has left open."""
    state = sys.modules[_STATE]
    before = [*(state.get_global_attribute(_NAMES) or [])]
    try:
        yield
    finally:
        state.set_global_attribute(_NAMES, before)


@contextlib.contextmanager
def policies_of_this_thread() -> Iterator[dict[int, Any]]:
    """Yields a dict to fill: dtype policies in this thread, by layers' `id`."""
    import keras

    policies: dict[int, Any] = {}
    thread = threading.get_ident()

    class Policy:
        def __get__(self, layer: Any, owner: Any) -> Any:
            if threading.get_ident() == thread and id(layer) in policies:
                return policies[id(layer)]
            # A layer that is being made has none yet.
            return vars(layer).get("_dtype_policy")

        def __set__(self, layer: Any, policy: Any) -> None:
            vars(layer)["_dtype_policy"] = policy

    keras.Layer._dtype_policy = Policy()
    try:
        yield policies
    finally:
        del keras.Layer._dtype_policy


def trace_texts(function: Any, shape: Any, *, is_batch: bool) -> None:
    """Traces a `predict_function` for texts, or that of `predict_on_batch`."""
    import tensorflow as tf

    trace = getattr(function, "get_concrete_function", None)
    if trace is not None and not tf.config.functions_run_eagerly():
        spec = tf.TensorSpec(shape, "string")
        trace([(spec,) if is_batch else spec])


def in_batches(x: Any, size: int | None) -> tuple[Any, int | None]:
    """Returns arrays as `predict` takes them, and its `batch_size`.

    For arrays on TensorFlow, Keras would trace functions that batch them, at
    each call, which can take longer than the model. A dataset needs none.
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return x, size
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(x).batch(size or 32), None


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Keeps Python from looking for garbage where nearly all is kept."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


@contextlib.contextmanager
def separate_traces() -> Iterator[None]:
    """Has every `tf.function` traced again in this thread, within the context.

    At the end each function forgets these traces and has its former ones.
    TensorFlow looks traces up by, among others, the variable policy of the
    SavedModel that is being written: a policy of our own keeps them apart.
    """
    options = types.SimpleNamespace(experimental_variable_policy=_Policy())
    policy = weakref.ref(options.experimental_variable_policy)
    try:
        with _saving(options):
            yield
    finally:
        del options
        # Only the key of a trace holds the policy now. The search for keys
        # takes a twentieth of a small export, and most exports leave none.
        if (kept := policy()) is not None:
            _forget_traces(kept)


class _Policy:
    """A policy for variables that equals no other."""


@contextlib.contextmanager
def ordinary_traces() -> Iterator[None]:
    """Leaves `separate_traces` for a while, to write a SavedModel."""
    from tensorflow.python.saved_model import save_context

    if not save_context.in_save_context():
        yield
        return
    options = save_context.get_save_options()
    save_context._save_context.exit_save_context()
    try:
        yield
    finally:
        save_context._save_context.enter_save_context(options)


def _saving(options: Any) -> Any:
    from tensorflow.python.saved_model import save_context

    return save_context.save_context(options)


def _forget_traces(policy: Any) -> None:
    from tensorflow.core.function.polymorphism import function_cache

    # There is no list of them: any layer, closure or module may hold one.
    caches = [
        each
        for each in gc.get_objects()
        if type(each) is function_cache.FunctionCache
    ]
    for cache in caches:
        for key in list(cache._primary):
            if key[0].context.variable_policy is policy:
                cache._primary.pop(key, None)
        for key in list(cache._dispatch_dict):
            if key.context.variable_policy is policy:
                cache._dispatch_dict.pop(key, None)


def traced_once(
    function: Callable[..., Any],
    *tensors: Any,
    known: dict[Any, Any],
    key: tuple[Any, ...],
) -> Any:
    """Returns `function(*tensors)`; in a graph it is one call of a function.

    Tracing the blocks of a model one by one takes most of the time until it
    first runs. `known` keeps what was traced; `key` tells functions apart.
    """
    if not is_in_graph(tensors[0]) or is_compiled_by_xla(tensors[0]):
        return function(*tensors)
    import tensorflow as tf

    specs = [tf.TensorSpec(x.shape, x.dtype) for x in tensors]
    key = (*key, *((tuple(spec.shape), spec.dtype) for spec in specs))
    if key not in known:
        traced = tf.function(function, autograph=False)
        known[key] = traced.get_concrete_function(*specs)
    return known[key](*tensors)


@contextlib.contextmanager
def alike_shared(is_shared: bool) -> Iterator[None]:
    """A scope in which `called_alike` shares functions in graphs, or not."""
    token = _SHARES.set(is_shared)
    try:
        yield
    finally:
        _SHARES.reset(token)


def called_alike(
    function: Callable[..., Any],
    layer: Any,
    *given: Any,
    known: dict[Any, Any],
    kind: Any,
) -> Any:
    """Returns `function(layer, *given)`; in some graphs, by a shared function.

    Layers of one `kind` that are alike differ in their weights alone. `known`
    keeps what was traced. The first of them is called as it is: what it keeps
    for the others must be of the graph, not of a function within.
    """
    likeness = _likeness(layer) if _SHARES.get() else None
    if likeness is None:
        return function(layer, *given)
    import keras
    import tensorflow as tf

    kind = function, kind, likeness
    if kind not in known:
        known[kind] = None
        return function(layer, *given)
    if known[kind] is None:

        def call(values: Any, given: Any) -> Any:
            lent = [*zip(layer.weights, values, strict=True)]
            with keras.StatelessScope(lent):
                return function(layer, *given)

        # TensorFlow would optimize each copy, which takes as long as tracing.
        known[kind] = tf.function(
            call,
            autograph=False,
            experimental_attributes={"_noinline": True},
        )
    values = [tf.convert_to_tensor(x._value) for x in layer.weights]
    return known[kind](values, given)


def in_one_thread(
    function: Callable[..., Any], variables: Sequence[Any], *given: Any
) -> Any:
    """Returns `function(*given)`; in a graph, of one thread on the CPU.

    TensorFlow hands operators between threads, which takes longer than small
    ones do themselves. Its executor of one thread runs no function that is
    divided between devices: so nothing in this one is a resource, such as the
    `variables`, which are read before. And it would wait for shared
    functions, for ever where no other thread is free.
    """
    is_plain = not is_in_graph(given[0]) or has_static_shapes()
    if is_plain or _SHARES.get() or is_compiled_by_xla(given[0]):
        return function(*given)
    import keras
    import tensorflow as tf

    def call(values: Any, given: Any) -> Any:
        lent = [*zip(variables, values, strict=True)]
        with tf.device(place), keras.StatelessScope(lent):
            return function(*given)

    values = [tf.convert_to_tensor(each.value) for each in variables]
    place, kind = "CPU:0", "SINGLE_THREADED_EXECUTOR"
    with tf.device(place), tf.experimental.function_executor_type(kind):
        return tf.function(call, autograph=False)(values, given)


def _likeness(layer: Any) -> tuple[Any, ...] | None:
    """Returns what is equal for layers that differ in their weights alone.

    Returns None if that is unknown, as of code that is not Keras's or ours, or
    if the layer has variables that a shared function would not update. Those
    of dropout change only as the layer is trained.
    """
    import keras

    parts = [*layers_within(layer)]
    names = {each.name for each in parts}
    packages = {type(each).__module__.partition(".")[0] for each in parts}
    drops = [x for x in parts if isinstance(x, keras.layers.Dropout)]
    kept = sum(len(x.variables) for x in drops) + len(layer.weights)
    if (
        packages - {"keras", __package__}
        or any(isinstance(each, keras.layers.Lambda) for each in parts)
        or len(layer.variables) > kept
    ):
        return None

    def unnamed(found: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in found.items() if k != "name" or v not in names}

    try:
        configs = json.dumps([each.get_config() for each in parts])
    except Exception:  # such as of an argument that has no config
        return None
    return (
        repr(json.loads(configs, object_hook=unnamed)),
        *map(type, parts),
        *((x.name, tuple(x.shape), x.dtype) for x in layer.weights),
        # Functions of one name may differ.
        *(id(getattr(each, "activation", None)) for each in parts),
    )


def traced_for_any_size(
    function: Any,
    inputs: Mapping[str, Any],
    known: Mapping[str, Any],
    jit_compile: bool,
) -> tuple[Any, dict[str, Any]]:
    """Returns a graph function of named arrays, and the specs of its outputs.

    Axes are of any size, except in inputs whose spec is known. Alike layers
    become calls of one function.
    """
    import tensorflow as tf

    specs = {
        name: known.get(name)
        or tf.TensorSpec([None] * value.ndim, value.dtype, name)
        for name, value in inputs.items()
    }
    traced = tf.function(
        function,
        input_signature=[specs],
        jit_compile=jit_compile,
        autograph=False,
    )
    with alike_shared(not jit_compile):
        made = traced.get_concrete_function().structured_outputs
    return traced, {
        name: tf.TensorSpec(each.shape, each.dtype, name)
        for name, each in made.items()
    }


def copied(x: Any) -> Any:
    """Returns a tensor of a graph in memory of its own, for good."""
    import tensorflow as tf

    return tf.raw_ops.DeepCopy(x=x)


def written_rows(x: Any, rows: Any, new: Any) -> Any:
    """Returns `x`, of `copied`, with new rows written into its memory."""
    import tensorflow as tf

    return tf.raw_ops.InplaceUpdate(x=x, i=rows, v=new)


def matmul_transposed(x: Any, y: Any) -> Any:
    """Returns products of `x` with transposed matrices `y`, as one operator."""
    import tensorflow as tf

    return tf.matmul(x, y, transpose_b=True)
