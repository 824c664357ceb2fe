"""Layers of several signatures, as functions that each artifact has once."""

import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_posenc.artifacts.signatures.signature import Signature, trace
from keras_posenc.keras_internals import (
    carried_mask,
    carry_mask,
    is_compiled_by_xla,
)

Call = Callable[..., Any]


def trace_all(signatures: Sequence[Signature]) -> dict[str, Any]:
    """The graph function of each signature by name, with shared layers."""
    with shared_layers(signatures):
        return {each.name: trace(each) for each in signatures}


@contextlib.contextmanager
def shared_layers(signatures: Sequence[Signature]) -> Iterator[None]:
    """Makes graph functions of what several signatures call, for a while.

    A server goes over every node of an artifact several times as it loads it,
    so that three signatures of one encoder would cost it three encoders. As a
    function that all of them call, a layer is there once. TensorFlow puts its
    body in place of the call before it runs a signature: none computes more.
    """
    with _other_calls(_shared_by(signatures), _as_function):
        yield


@contextlib.contextmanager
def remembered_layers(signatures: Sequence[Signature]) -> Iterator[None]:
    """Remembers what layers of several signatures answer, for a while.

    What a layer is given again, the very same tensors, it answers again: for
    signatures that are asked the same, one after the other, in eager code.
    """
    with _other_calls(_shared_by(signatures), _as_memory):
        yield


def _shared_by(signatures: Sequence[Signature]) -> list[keras.Layer]:
    counts = collections.Counter(
        layer
        for signature in signatures
        for layer in set(_graph_layers(signature.model))
    )
    return [layer for layer, count in counts.items() if count > 1]


@contextlib.contextmanager
def _other_calls(
    layers: Sequence[keras.Layer], other: Callable[[Call], Call]
) -> Iterator[None]:
    layers = [layer for layer in layers if "call" not in vars(layer)]
    try:
        for layer in layers:
            # Past the layer's own tracking of what it is given.
            vars(layer)["call"] = other(layer.call)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)  # the class's own is under it


def _graph_layers(model: keras.Model) -> Iterator[keras.Layer]:
    """The layers of a graph, and of the graphs in it; none of a subclass."""
    if getattr(model, "inputs", None):
        for layer in model.layers:
            if isinstance(layer, keras.Model):
                yield from _graph_layers(layer)
            else:
                yield layer


def _as_function(call: Call) -> Call:
    """A layer's `call`, traced once for each kind of arguments.

    And once more where XLA compiles, for which layers may choose otherwise.
    """
    import tensorflow as tf

    @tf.function(autograph=False)
    def function(masks: list[Any], args: Any, kwargs: Any, by_xla: bool) -> Any:
        _set_masks((args, kwargs), masks)
        outputs = call(*args, **kwargs)
        return outputs, _masks(outputs)

    def shared(*args: Any, **kwargs: Any) -> Any:
        by_xla = any(
            map(is_compiled_by_xla, keras.tree.flatten((args, kwargs)))
        )
        outputs, masks = function(_masks((args, kwargs)), args, kwargs, by_xla)
        _set_masks(outputs, masks)
        return outputs

    return shared


def _as_memory(call: Call) -> Call:
    """A layer's `call`, which computes once for the same arguments."""
    known: dict[Any, tuple[Any, Any, list[Any]]] = {}

    def remembering(*args: Any, **kwargs: Any) -> Any:
        given = [*keras.tree.flatten((args, kwargs)), *_masks((args, kwargs))]
        form = keras.tree.map_structure(lambda _: 0, (args, kwargs))
        key = (repr(form), *map(_key, given))
        if key not in known:
            # With what was given, whose addresses else would be another's.
            outputs = call(*args, **kwargs)
            known[key] = given, outputs, _masks(outputs)
        _, outputs, masks = known[key]
        # Without what layers of other signatures had them carry since.
        for each, mask in zip(keras.tree.flatten(outputs), masks, strict=True):
            if carried_mask(each) is not mask:
                carry_mask(each, mask)
        return outputs

    return remembering


def _key(value: Any) -> Any:
    """The same for the very same value, and for ids and masks made anew."""
    dtype = getattr(getattr(value, "dtype", None), "name", "")
    if hasattr(value, "numpy") and dtype.startswith(("int", "bool")):
        array = value.numpy()
        return dtype, array.shape, array.tobytes()
    return id(value)


def _masks(tensors: Any) -> list[Any]:
    """Keras's masks, which are attributes, and no function would keep."""
    return [carried_mask(each) for each in keras.tree.flatten(tensors)]


def _set_masks(tensors: Any, masks: Sequence[Any]) -> None:
    for tensor, mask in zip(keras.tree.flatten(tensors), masks, strict=True):
        if mask is not None:
            carry_mask(tensor, mask)
