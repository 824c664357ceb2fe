"""Models with the weights of one instant.

The caller may train the model meanwhile: layers read copies in this thread.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras

from keras_posenc.export.errors import ExportError
from keras_posenc.export.model_protocol import Offers
from keras_posenc.keras_internals import (
    exporting_to,
    forgotten_calls,
    has_static_shapes,
    layers_within,
    policies_of_this_thread,
    separate_traces,
    variable_within,
)
from keras_posenc_worker.codec import digest

# Only one export at a time may change settings and restore them.
_TURN = threading.RLock()
# Signatures are traced deep inside of what does not know of exports, such as
# the labels of a signature, or the graph of a reference.
_local = threading.local()


class FrozenModel:
    """Models that read copies of their weights, in one thread, for a while.

    In the thread that entered the context, copies of Keras variables are read
    and assigned instead, also in graphs traced there, which are dropped at the
    end. No attribute of a layer is changed: `policies` are of the thread, too.
    """

    def __init__(self, *values: Any) -> None:
        self._models = list(_models(values))
        for model in [*self._models]:
            # A generator caches these models. If they were made later, within
            # the context, their calls of its layers would be dropped with it.
            (Offers.of(model).offered_signatures or dict)()
            added = Offers.of(model).added_signatures or dict
            self._models.extend(added().values())
        self.layers = once(x for m in self._models for x in layers_within(m))
        operations = [*self.layers]
        for layer in self.layers:
            if isinstance(found := getattr(layer, "operations", None), list):
                operations += found  # of a graph: functions too
        self._operations = once(
            each for each in operations if isinstance(each, keras.Operation)
        )
        # Keeping the originals too keeps their ids from being reused.
        self._own: dict[int, tuple[Any, Any]] = {}
        self._by_handle: dict[int, tuple[Any, Any]] = {}
        # Of a variable's `ref()`; nothing changes a copy between two calls.
        self.digest = functools.cache(lambda x: digest(x.deref().read_value()))
        self.traced: dict[int, tuple[Any, Any]] = {}

    def __enter__(self) -> "FrozenModel":
        with contextlib.ExitStack() as stack:
            stack.enter_context(_TURN)
            stack.callback(self._free)
            stack.enter_context(forgotten_calls(self._operations))
            stack.enter_context(separate_traces())
            for variable in once(x for m in self._models for x in m.variables):
                if variable_within(variable) is not None:  # else: when read
                    self.own(variable)
            stack.enter_context(_Reading(self))
            stack.callback(setattr, _local, "frozen", None)
            _local.frozen = self
            self.policies = stack.enter_context(policies_of_this_thread())
            self._left = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._left.close()

    def own(self, variable: keras.Variable) -> Any:
        """Returns the copy of a Keras variable, which is made if missing."""
        found = self._own.get(id(variable))
        if found is None:
            value = variable_within(variable)
            if value is None:
                raise ExportError(
                    f"Weight '{variable.path}' is made only as its layer is "
                    "called. Call the model once on a batch of its inputs, "
                    "`model(x)`, and export it again"
                )
            found = variable, self._copy(value)
            self._own[id(variable)] = found
        return found[1]

    def _copy(self, variable: Any) -> Any:
        """Returns the copy of a `tf.Variable`; shared weights have one copy."""
        import tensorflow as tf
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        with tf.init_scope():
            handle = id(variable.handle)
            if handle not in self._by_handle:
                # The memory is shared until either is written to. It is no
                # `tf.Variable`, of which a strategy would make several.
                copied = ResourceVariable(
                    variable.read_value(),
                    trainable=variable.trainable,
                    name=variable.name.partition(":")[0],
                )
                self._by_handle[handle] = variable, copied
                self._by_handle[id(copied.handle)] = copied, copied
            return self._by_handle[handle][1]

    def take_over(self, function: Any) -> None:
        """Makes a graph function read copies of variables not of Keras."""
        read = {id(each.handle): each for each in function.variables}
        captures = list(function.captured_inputs)
        variables = []
        for index, capture in enumerate(captures):
            known = self._by_handle.get(id(capture))
            found = read.get(id(capture)) if known is None else known[0]
            if found is not None:
                variables.append(self._copy(found))
                captures[index] = variables[-1].handle
        function.set_external_captures(captures)
        function.graph.variables = variables

    def reading(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """A scope in which some Keras variables have the values given."""
        return _Reading(self, {id(each): value for each, value in pairs})

    def export_to(self, format: str) -> None:
        """Tells layers the format, "litert" or "onnx", while frozen."""
        self._left.enter_context(exporting_to(format))

    def weights(self, models: Iterable[keras.Model]) -> list[tuple[str, str]]:
        """Returns path and SHA-256 of the weights of models."""
        wanted = {id(each) for model in models for each in model.weights}
        return [
            (variable.path, self.digest(copied.ref()))
            for variable, copied in self._own.values()
            if id(variable) in wanted
        ]

    def _free(self) -> None:
        """Frees the copies' memory, also if a graph still refers to them."""
        import tensorflow as tf

        for original, copied in self._by_handle.values():
            if original is not copied:
                tf.raw_ops.AssignVariableOp(
                    resource=copied.handle,
                    value=tf.zeros((0,), copied.dtype),
                    validate_shape=False,
                )
        self._by_handle.clear()
        self._own.clear()
        self.traced.clear()


class _Reading(keras.StatelessScope):
    """A scope in which Keras variables are read and assigned as copies."""

    def __init__(
        self, frozen: FrozenModel, given: Mapping[int, Any] | None = None
    ) -> None:
        super().__init__()
        self._frozen = frozen
        self.state_mapping.update(given or {})

    def get_current_value(self, variable: Any) -> Any:
        if id(variable) in self.state_mapping:
            return self.state_mapping[id(variable)]
        return self._frozen.own(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        variable, value = update
        if id(variable) in self.state_mapping:
            self.state_mapping[id(variable)] = value
        else:
            self._frozen.own(variable).assign(value)


def traced_frozen(signature: Any, trace: Callable[[Any], Any]) -> Any:
    """Returns the graph function; for a server the same one each time."""
    frozen = getattr(_local, "frozen", None)
    if frozen is None:
        return trace(signature)
    # For a converter again: the second graph shows state in Python.
    known = {} if has_static_shapes() else frozen.traced
    if id(signature) not in known:
        function = trace(signature)
        frozen.take_over(function)
        known[id(signature)] = signature, function
    return known[id(signature)][1]


def once(values: Iterable[Any]) -> list[Any]:
    """Returns each object once, in order."""
    return [*{id(each): each for each in values}.values()]


def _models(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, keras.Layer):
            yield value
        elif isinstance(value, Mapping):
            yield from _models(value.values())
        elif isinstance(value, tuple | list):
            yield from _models(value)
