"""Functions and layers that are computed again for gradients."""

import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_posenc.keras_internals import (
    carried_mask,
    carry_mask,
    layers_within,
    recompute_within_others,
    recomputing_mode,
)

# Whether a layer around this one is recomputed as a whole.
_IS_WITHIN: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "keras_posenc_recomputable", default=False
)


class Recomputable:
    """Base of layers and models, before Keras's own, for `keras.RematScope`.

    Keras's own way passes the arguments of a call to TensorFlow by name, which
    fails in graphs, and draws other random numbers in the second run. Here
    tensors are passed by position, and both runs read the same variables.

    A layer is recomputed only in training, as a whole and once, with all
    layers within it, Keras's included.
    """

    # Whether the layers within are recomputed one by one instead: recomputing
    # all of them at once would need as much memory as none.
    recomputed_in_parts = False

    def take_layers_within(self) -> None:
        """Has Keras's layers within recomputed only as part of this one."""
        if recomputing_mode(self)[0] in (None, "activations"):
            return
        for layer in layers_within(self):
            if not isinstance(layer, Recomputable):
                recompute_within_others(layer)

    def rematerialized_call(
        self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        decided: Any = super().rematerialized_call  # type: ignore[misc]
        mode, names = recomputing_mode(self)
        if mode == "activations":
            return decided(layer_call, *args, **kwargs)
        self.take_layers_within()
        if _IS_WITHIN.get() or not kwargs.get("training"):
            return layer_call
        in_parts = self.recomputed_in_parts or isinstance(self, keras.Model)
        if mode == "list_of_layers":
            own: Any = [self] if in_parts else layers_within(self)
            if not any(layer.name in names for layer in own):
                return layer_call
        elif in_parts or decided(layer_call, *args, **kwargs) is layer_call:
            return layer_call

        @functools.wraps(layer_call)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _recomputed_call(self, layer_call, args, kwargs)

        return call


def _recomputed_call(layer: Any, call: Any, args: Any, kwargs: Any) -> Any:
    """Calls a layer; for gradients only the arguments are kept."""
    context = kwargs.get("context")
    flat = keras.tree.flatten((args, kwargs))
    places = [i for i, x in enumerate(flat) if keras.ops.is_tensor(x)]
    within: list[Any] = []
    if context is not None:
        context.mapped(within.append)
    variables = layer.variables
    # Copies: PyTorch would change the values that the second run reads.
    values = [
        keras.ops.convert_to_tensor(v.value)
        if v.trainable
        else keras.ops.copy(v.value)
        for v in variables
    ]
    made: list[Any] = []  # the outputs, and the variables that were assigned

    def function(*tensors: Any) -> list[Any]:
        given = iter(tensors)
        filled = list(flat)
        for place in places:
            filled[place] = next(given)
            mask = carried_mask(flat[place])
            if mask is not None:
                carry_mask(filled[place], mask)
        own_args, own_kwargs = keras.tree.pack_sequence_as(
            (args, kwargs), filled
        )
        if context is not None:
            own_kwargs["context"] = context.mapped(lambda _: next(given))
        token = _IS_WITHIN.set(True)
        try:
            with keras.StatelessScope(
                list(zip(variables, given, strict=True))
            ) as scope:
                before = [scope.get_current_value(v) for v in variables]
                outputs = call(*own_args, **own_kwargs)
                after = [scope.get_current_value(v) for v in variables]
        finally:
            _IS_WITHIN.reset(token)
        assigned = [
            i
            for i, (old, new) in enumerate(zip(before, after, strict=True))
            if new is not old
        ]
        made[:] = outputs, assigned
        return [*keras.tree.flatten(outputs), *(after[i] for i in assigned)]

    tensors = (flat[place] for place in places)
    results = list(recomputed(function, *tensors, *within, *values))
    outputs, assigned = made
    for i in reversed(assigned):
        variables[i].assign(results.pop())
    return keras.tree.pack_sequence_as(outputs, results)


def recomputed(
    function: Callable[..., Any],
    *args: Any,
    values: Sequence[tuple[Any, Any]] = (),
) -> Any:
    """Returns `function(*args)`; for gradients only the arguments are kept.

    Gradients reach float arguments and the `values`, and nothing else that the
    function uses: Keras variables that it reads, with the tensors that it reads
    instead. In loops, TensorFlow gives variables no gradients.
    """
    given = [*args, *(value for _, value in values)]
    floats = [i for i, x in enumerate(given) if x is not None and _is_float(x)]

    def run(*tensors: Any) -> Any:
        filled = list(given)
        for i, tensor in zip(floats, tensors, strict=True):
            filled[i] = tensor
        held = [
            (variable, tensor)
            for (variable, _), tensor in zip(
                values, filled[len(args) :], strict=True
            )
        ]
        with keras.StatelessScope(held):
            return function(*filled[: len(args)])

    return keras.remat(run)(*(given[i] for i in floats))


def _is_float(x: Any) -> bool:
    return keras.backend.is_float_dtype(x.dtype)
