"""Copies of whatever a model reaches."""

import collections
import contextlib
import copy
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.graphs.time_distributed import over_any_length

# Keras pickles by its files, which not every model can be written to. What it
# has inside is copied instead.
_PICKLED_AS_FILES = tuple(
    kind
    for kind in keras.Operation.__mro__
    if kind is not object and "__reduce__" in vars(kind)
)

_ATOMS = {
    bool,
    bytes,
    complex,
    float,
    inspect.Signature,
    int,
    range,
    str,
    types.BuiltinFunctionType,
    types.CodeType,
    types.EllipsisType,
    types.ModuleType,
    types.NoneType,
    types.NotImplementedType,
}


class Copier:
    """Copies in steps: first empty objects, then what is in them.

    So a graph may be of any depth, and have any circles.

    Attributes:
        variables: Each variable met, with its copy.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        self._shared = (
            type,
            keras.optimizers.Optimizer,
            np.generic,
            tf.DType,
            tf.Graph,
            tf.IndexedSlices,
            tf.RaggedTensor,
            tf.SparseTensor,
            tf.Tensor,
            tf.TensorShape,
            tf.TypeSpec,
            tf.distribute.Strategy,
            tf.saved_model.experimental.TrackableResource,
            tf.types.experimental.ConcreteFunction,
        )
        self._traced = tf.types.experimental.PolymorphicFunction
        self._variable = tf.Variable
        self._weights = (keras.Variable, tf.Variable)
        self._is_shared: dict[type, bool] = {}
        # The originals beside their copies, so that no other gets their ids.
        self._copies: dict[int, tuple[Any, Any]] = {}
        self.variables: list[tuple[Any, Any]] = []
        # To fill objects; then what hashes them; then what reads them.
        self._fill: collections.deque[Callable[[], None]] = collections.deque()
        self._insert: list[Callable[[], None]] = []
        self._restore: list[Callable[[], None]] = []

    def copy(self, value: Any) -> Any:
        """The copy of a value, which `finish` fills."""
        if type(value) in _ATOMS:
            return value
        found = self._copies.get(id(value))
        if found is not None:
            return found[1]
        kind = type(value)
        if kind not in self._is_shared:
            self._is_shared[kind] = issubclass(
                kind, self._shared
            ) and not issubclass(kind, self._weights)
        if self._is_shared[kind]:
            return value
        try:
            copied = self._begin(value)
        except Exception as error:  # of anyone's __new__ or __reduce__
            if issubclass(kind, (*self._weights, *_PICKLED_AS_FILES)):
                name = getattr(value, "name", "")
                raise ExportError(
                    f"{kind.__name__} '{name}' cannot be copied, and an export "
                    "works on a copy of the model, for another thread may use "
                    f"the model itself: {error}"
                ) from error
            copied = value
        self._copies[id(value)] = value, copied
        return copied

    def finish(self) -> None:
        """Fills every copy."""
        while self._fill:
            self._fill.popleft()()
        for step in (*self._insert, *reversed(self._restore)):
            step()

    def _begin(self, value: Any) -> Any:
        kind = type(value)
        if kind is tuple:
            return tuple(map(self.copy, value))
        if kind is list:
            return self._filled_later(value, [], list.extend)
        if kind is set:
            return self._filled_later(value, set(), set.update)
        if kind is dict:
            return self._with_pairs({}, value.items(), dict.__setitem__)
        if kind is types.MappingProxyType:
            return types.MappingProxyType(self.copy(dict(value)))
        if kind is types.FunctionType:
            return self._function(value)
        if kind is types.MethodType:
            return kind(self.copy(value.__func__), self.copy(value.__self__))
        if kind is types.CellType:
            return self._cell(value)
        if kind is weakref.ref:
            target = value()
            if target is None:
                return value
            reference = _Reference(self.copy(target))
            reference.target = self.copy(target)
            return reference
        if issubclass(kind, self._traced):
            # It keeps how it is to be traced, and not what it was traced to.
            return value._clone(self.copy(value.python_function))
        if issubclass(kind, self._variable):
            copied = copy.deepcopy(value)
            self.variables.append((value, copied))
            return copied
        if issubclass(kind, np.ndarray) and value.dtype != object:
            return value.copy()
        return self._object(value)

    def _filled_later(self, value: Any, copied: Any, extend: Any) -> Any:
        parts = list(value)

        def fill() -> None:
            copies = list(map(self.copy, parts))
            self._insert.append(functools.partial(extend, copied, copies))

        self._fill.append(fill)
        return copied

    def _with_pairs(self, copied: Any, pairs: Any, insert: Any) -> Any:
        pairs = list(pairs)

        def fill() -> None:
            self._insert.extend(
                functools.partial(
                    insert, copied, self.copy(key), self.copy(part)
                )
                for key, part in pairs
            )

        self._fill.append(fill)
        return copied

    def _function(self, function: types.FunctionType) -> Any:
        module = sys.modules.get(function.__module__)
        inside = (
            function.__closure__,
            function.__defaults__,
            function.__kwdefaults__,
            function.__dict__,
        )
        if (
            not any(inside)
            or getattr(module, function.__name__, None) is function
        ):
            return function
        copied = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            closure=self.copy(function.__closure__),
        )
        for name in ("__annotations__", "__doc__", "__module__"):
            setattr(copied, name, getattr(function, name))
        copied.__qualname__ = function.__qualname__

        def fill() -> None:
            copied.__defaults__ = self.copy(function.__defaults__)
            copied.__kwdefaults__ = self.copy(function.__kwdefaults__)
            self._with_pairs(
                vars(copied), vars(function).items(), dict.__setitem__
            )

        self._fill.append(fill)
        return copied

    def _cell(self, cell: types.CellType) -> types.CellType:
        copied = types.CellType()

        def fill() -> None:
            with contextlib.suppress(ValueError):  # it is empty
                copied.cell_contents = self.copy(cell.cell_contents)

        self._fill.append(fill)
        return copied

    def _object(self, value: Any) -> Any:
        """Any object, as `copy.deepcopy` would copy it; a layer by itself."""
        kind = type(value)
        if issubclass(kind, _PICKLED_AS_FILES):
            copied = object.__new__(over_any_length(kind))
            self._with_state(copied, object.__getstate__(value))
            return copied
        if hasattr(kind, "__del__"):
            return value
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # a global name
            return value
        parts: list[Any] = [*reduced, None, None, None, None]
        make, arguments, state, items, pairs, restore = parts[:6]
        copied = make(*self._filled(arguments))
        if restore is None:
            restore = getattr(kind, "__setstate__", None)
        if restore is not None and state is not None:
            filled = self._filled(state)
            self._restore.append(lambda: restore(copied, filled))
        elif state is not None:
            self._with_state(copied, state)
        if items is not None:
            # Past what a subclass does with what is added to it.
            extend = list.extend if isinstance(value, list) else kind.extend
            self._filled_later(items, copied, extend)
        if pairs is not None:
            insert = next(
                base.__setitem__
                for base in (collections.OrderedDict, dict, kind)
                if isinstance(value, base)
            )
            self._with_pairs(copied, pairs, insert)
        return copied

    def _with_state(self, copied: Any, state: Any) -> None:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        attributes = dict(attributes or {})

        def fill() -> None:
            copies = {key: self.copy(part) for key, part in attributes.items()}
            if copies:
                copied.__dict__.update(copies)
            for key, part in (slots or {}).items():
                object.__setattr__(copied, key, self.copy(part))
            if copies.keys() >= {"config", "stored_ids"}:
                self._restore.append(lambda: _track(copied))

        self._fill.append(fill)

    def _filled(self, value: Any) -> Any:
        """What a constructor reads at once, so that it cannot be filled later.

        It was made for it just now, and so nobody else has it.
        """
        if type(value) in (tuple, list):
            return type(value)(map(self._filled, value))
        if type(value) is dict:
            return {
                self.copy(key): self._filled(part)
                for key, part in value.items()
            }
        return self.copy(value)


class _Reference(weakref.ref[Any]):
    """A weak reference in a copy, where nobody else may hold what it is to."""

    target: Any


def _track(tracker: Any) -> None:
    """Tells Keras's tracker of a layer which ids its copies have."""
    tracker.stored_ids = {
        name: set(map(id, store)) for name, (_, store) in tracker.config.items()
    }
