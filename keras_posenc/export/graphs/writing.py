"""Traces signatures, and writes them to a SavedModel with TensorFlow."""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.frozen import computing_by
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import (
    carried_mask,
    carry_mask,
    is_compiled_by_xla,
    layers_within,
    ordinary_traces,
)
from keras_posenc.publish import writing_to


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


def tables_of(signatures: Sequence[Signature]) -> list[Any]:
    """Returns lookup tables and similar resources of layers."""
    import tensorflow as tf

    resource = tf.saved_model.experimental.TrackableResource
    return list(
        {
            id(value): value
            for signature in signatures
            for layer in layers_within(signature.model)
            for value in vars(layer).values()
            if isinstance(value, resource)
        }.values()
    )


def weights_of(functions: Mapping[str, Any]) -> list[Any]:
    """Returns the variables that functions read, as a file lists them."""
    return list(
        {
            id(variable): variable
            for function in functions.values()
            for variable in function.variables
        }.values()
    )


def serve_of(signature: Signature, function: Any) -> Any:
    """Returns Keras's function `serve` for a signature.

    It takes and returns what the model does, and computes only the signature's
    graph function.
    """
    import tensorflow as tf

    def spec(name: str) -> Any:
        given = signature.specs[name]
        return tf.TensorSpec(given.shape, given.dtype, name=name)

    arguments = keras.tree.map_structure(spec, list(signature.arguments))
    names = keras.tree.flatten(list(signature.arguments))

    @tf.function(input_signature=arguments, autograph=False)
    def serve(*given: Any) -> Any:
        tensors = keras.tree.flatten(list(given))
        outputs = function(**dict(zip(names, tensors, strict=True)))
        return signature.pack(outputs)

    return serve


def write_saved_model(
    signatures: Sequence[Signature], folder: Path, has_serve: bool = False
) -> dict[str, Any]:
    """Writes a SavedModel, each weight once; returns its graph functions."""
    import tensorflow as tf

    functions = trace_all(signatures)
    # Track only what the functions read: Keras's own export tracks every layer
    # as well, and so writes each weight twice.
    module = tf.Module()
    module.weights = weights_of(functions)
    module.tables = tables_of(signatures)
    for signature in signatures if has_serve else ():
        if signature.has_serve:
            module.serve = serve_of(signature, functions[signature.name])
    try:
        with writing_to(folder.parent), ordinary_traces():
            tf.saved_model.save(module, str(folder), signatures=functions)
    except AssertionError as error:
        raise ExportError(
            "A layer of the model uses a TensorFlow resource, such as a lookup "
            "table, that is no attribute of the layer, so that it cannot be "
            f"saved with it: {str(error).splitlines()[0]}"
        ) from error
    except tf.errors.OpError as error:
        raise ExportError(
            f"Cannot write to '{folder.parent}': {in_words(error)}"
        ) from error
    return functions
