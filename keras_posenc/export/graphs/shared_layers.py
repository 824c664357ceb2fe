"""Layers of several signatures, as functions that each artifact has once."""

import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_posenc.export.frozen import replaced
from keras_posenc.export.signatures.signature import Signature, trace
from keras_posenc.keras_internals import (
    carried_mask,
    carry_mask,
    is_compiled_by_xla,
)


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
    counts = collections.Counter(
        layer
        for signature in signatures
        for layer in set(_graph_layers(signature.model))
    )
    shared = [
        layer
        for layer, count in counts.items()
        if count > 1 and "call" not in vars(layer)
    ]
    with contextlib.ExitStack() as stack:
        for layer in shared:
            function = _as_function(layer.call)
            stack.enter_context(replaced(layer, "call", function))
        yield


def _graph_layers(model: keras.Model) -> Iterator[keras.Layer]:
    """The layers of a graph, and of the graphs in it; none of a subclass."""
    if getattr(model, "inputs", None):
        for layer in model.layers:
            if isinstance(layer, keras.Model):
                yield from _graph_layers(layer)
            else:
                yield layer


def _as_function(call: Callable[..., Any]) -> Callable[..., Any]:
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


def _masks(tensors: Any) -> list[Any]:
    """Keras's masks, which are attributes, and no function would keep."""
    return [carried_mask(each) for each in keras.tree.flatten(tensors)]


def _set_masks(tensors: Any, masks: Sequence[Any]) -> None:
    for tensor, mask in zip(keras.tree.flatten(tensors), masks, strict=True):
        if mask is not None:
            carry_mask(tensor, mask)
