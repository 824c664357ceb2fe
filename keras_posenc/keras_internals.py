"""What is private to Keras and used all the same. Nothing else may name it.

Nor what is private to the TensorFlow below it.

Keras says neither of a tensor's mask where it is written or read behind a
layer, nor of a graph which layer made a tensor from what, nor who compiles it,
and lets no variable of several processes have a value of one. Each function
here has a test of its own, which says what breaks when Keras, or TensorFlow
below it, changes the name.
"""

import contextlib
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_EXPORTERS = ("keras.src.export.onnx", "keras.src.export.openvino")


def carried_mask(tensor: Any) -> Any:
    """The mask that a tensor carries from layer to layer, or None."""
    return getattr(tensor, "_keras_mask", None)


def carry_mask(tensor: Any, mask: Any) -> None:
    """Has a tensor carry a mask, as a layer's `compute_mask` would."""
    tensor._keras_mask = mask


def layer_behind(tensor: Any) -> Any:
    """The layer, or other operation, that made a symbolic tensor."""
    return tensor._keras_history.operation


def tensors_behind(tensor: Any) -> list[Any]:
    """The symbolic tensors of which that operation made it."""
    history = tensor._keras_history
    node = history.operation._inbound_nodes[history.node_index]
    return list(node.input_tensors)


def layers_within(layer: Any) -> Iterator[Any]:
    """A layer or model and all layers inside it, at any depth."""
    yield from layer._flatten_layers()


def recomputing_mode(layer: Any) -> tuple[str | None, list[str]]:
    """The mode, and the names, of the `keras.RematScope` of a layer."""
    mode = layer._remat_mode
    return (None, []) if mode is None else (mode.mode, mode.layer_names)


def recompute_within_others(layer: Any) -> None:
    """Has a layer computed again with those around it, and not by itself."""
    layer._remat_mode = None


def is_compiled_by_xla(tensor: Any) -> bool:
    """Whether TensorFlow has XLA compile what is made of a tensor."""
    graph = getattr(tensor, "graph", None)  # that of a loop, and those around
    while graph is not None:
        flow = graph._get_control_flow_context()
        while flow is not None:
            if flow.IsXLAContext():
                return True
            flow = flow.outer_context
        graph = getattr(graph, "outer_graph", None)
    return False


def is_exported_by_keras() -> bool:
    """Whether `model.export` is tracing, to ONNX or OpenVINO.

    Keras says nothing of that to layers: its functions are on the stack.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _EXPORTERS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def unread_converter(
    folder: Path,
    signatures: Sequence[str],
    is_compact: Callable[[bytes], bool] = lambda content: False,
) -> Any:
    """A converter of a SavedModel to LiteRT that does not read it in Python.

    TensorFlow's public one loads it twice and imports its graph once more, to
    look for fake quantization and for notes. A file that is not quantized
    needs neither.

    Args:
        folder: The SavedModel.
        signatures: Their names.
        is_compact: Whether a file need not be packed anew, with equal constants
            once.
    """
    import tensorflow as tf
    from tensorflow.lite.python import lite

    class Converter(lite.TFLiteSavedModelConverterV2):
        def convert(self) -> bytes:
            content: bytes = self._convert_from_saved_model(None)
            return content

        def _optimize_tflite_model(
            self, model: bytes, *arguments: Any, **named: Any
        ) -> bytes:
            if is_compact(model):
                return model
            packed: bytes = super()._optimize_tflite_model(
                model, *arguments, **named
            )
            return packed

    return Converter(str(folder), {tf.saved_model.SERVING}, list(signatures))


@contextlib.contextmanager
def lent_values(pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Lends each variable a value, wherever that lies, and takes it back.

    Args:
        pairs: Variables, and what they hold meanwhile.
    """
    own = [variable._value for variable, _ in pairs]
    try:
        for variable, value in pairs:
            variable._value = value
        yield
    finally:
        for (variable, _), value in zip(pairs, own, strict=True):
            variable._value = value


def variable_within(variable: Any) -> Any:
    """The backend's variable of a Keras variable; None before it has one.

    `variable.value` is what a `keras.StatelessScope` has in its place.
    """
    return variable._value


@contextlib.contextmanager
def forgotten_calls(operations: Sequence[Any]) -> Iterator[None]:
    """Has layers, and other operations, forget how they are called within.

    That is, whether they were, and the nodes that each new graph adds.
    """
    nodes = [
        (found, len(found))
        for each in operations
        for found in (each._inbound_nodes, each._outbound_nodes)
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
        for attributes, value in called:
            attributes["_called"] = value


def set_policy(layer: Any, policy: Any) -> Any:
    """Sets a layer's dtype policy, and nothing else; returns the former one.

    The public setter writes into a `DTypePolicyMap`, which the layers of a
    model share, and runs what a class has for a `__setattr__`.
    """
    former = vars(layer)["_dtype_policy"]
    vars(layer)["_dtype_policy"] = policy
    return former


@contextlib.contextmanager
def separate_traces() -> Iterator[None]:
    """Has every `tf.function` traced again in this thread, for this context.

    As it ends, each function forgets these traces, and has those of before.
    TensorFlow keeps traces by, among others, the policy for variables of the
    SavedModel that is being written. A policy of our own makes ours ours.
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

    # Nothing lists them: any layer, closure or module may hold a function.
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
