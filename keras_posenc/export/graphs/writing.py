"""Traces signatures, and writes them to a SavedModel with TensorFlow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.frozen import once
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.signatures.tracing import trace
from keras_posenc.keras_internals import layers_within, ordinary_traces
from keras_posenc.publish import writing_to


def tables_of(signatures: Sequence[Signature]) -> list[Any]:
    """Returns lookup tables and similar resources of layers."""
    import tensorflow as tf

    resource = tf.saved_model.experimental.TrackableResource
    layers = (x for each in signatures for x in layers_within(each.model))
    found = (value for layer in layers for value in vars(layer).values())
    return once(value for value in found if isinstance(value, resource))


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

    functions = {each.name: trace(each) for each in signatures}
    # Track only what the functions read: Keras's own export tracks every layer
    # as well, and so writes each weight twice.
    module = tf.Module()
    module.weights = once(x for f in functions.values() for x in f.variables)
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
