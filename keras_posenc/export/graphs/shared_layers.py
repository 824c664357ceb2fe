"""Layers of several signatures, as functions stored once in a file."""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_posenc.export.frozen import computing_by
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import (
    carried_mask,
    carry_mask,
    is_compiled_by_xla,
)


def trace_all(signatures: Sequence[Signature]) -> dict[str, Any]:
    """Returns the graph functions of signatures by name, with shared layers."""
    shared = {
        layer: _as_function(layer) for layer in _shared_layers(signatures)
    }
    with computing_by(shared):
        return {each.name: trace(each) for each in signatures}


def _shared_layers(signatures: Sequence[Signature]) -> list[keras.Layer]:
    """Returns the layers that several signatures call.

    A server visits every node several times as it loads a model, so three
    signatures of one encoder would cost three encoders. As a function that all
    of them call, a layer is stored once. TensorFlow inlines it before it runs a
    signature, so none computes more.
    """
    counts = collections.Counter(
        layer
        for signature in signatures
        for layer in set(_graph_layers(signature.model))
    )
    return [layer for layer, count in counts.items() if count > 1]


def _graph_layers(model: keras.Model) -> Iterator[keras.Layer]:
    """Yields the layers of a functional model, and of those inside it."""
    if getattr(model, "inputs", None):
        for layer in model.layers:
            if isinstance(layer, keras.Model):
                yield from _graph_layers(layer)
            else:
                yield layer


def _as_function(layer: Any) -> Callable[..., Any]:
    """Returns a layer's `call`, traced once for each kind of arguments.

    It is traced again under XLA, for which layers may compute differently.
    """
    import tensorflow as tf

    call = layer.quantized_call if layer.quantization_mode else layer.call

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
    """Returns Keras's masks: a function would not keep these attributes."""
    return [carried_mask(each) for each in keras.tree.flatten(tensors)]


def _set_masks(tensors: Any, masks: Sequence[Any]) -> None:
    for tensor, mask in zip(keras.tree.flatten(tensors), masks, strict=True):
        if mask is not None:
            carry_mask(tensor, mask)
