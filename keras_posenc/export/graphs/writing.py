"""Traces signatures, and writes them to a SavedModel with TensorFlow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import layers_within, ordinary_traces
from keras_posenc.publish import writing_to


def trace_all(signatures: Sequence[Signature]) -> dict[str, Any]:
    """Returns the graph functions of signatures by name."""
    return {each.name: trace(each) for each in signatures}


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
    """Returns Keras's function `serve` for a signature's graph function."""
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
