"""Signatures as graph functions of TensorFlow."""

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import traced_frozen
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import (
    alike_shared,
    has_static_shapes,
    kept_names,
    layers_within,
)


def trace(signature: Signature) -> Any:
    """Returns the signature as a TensorFlow graph function of any sizes."""
    return traced_frozen(signature, _traced)


def called(signature: Signature, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Calls a signature within another one: for a server, its one graph."""
    if has_static_shapes():
        return signature.call(tensors)
    import tensorflow as tf

    with tf.init_scope():
        function = trace(signature)
    outputs: dict[str, Any] = function(**tensors)
    return outputs


def _traced(signature: Signature) -> Any:
    import tensorflow as tf

    def call(**inputs: Any) -> dict[str, Any]:
        for name, spec in signature.specs.items():
            # Clients may send strings of another rank, at which TF-Text's
            # operators abort the whole server.
            if spec.dtype == "string":
                inputs[name] = tf.ensure_shape(inputs[name], spec.shape)
        return signature.call(inputs)

    # Other converters of a SavedModel may need all operators in one graph.
    is_shared = signature.is_large and not has_static_shapes()
    with tracing(signature), tf.device(None), alike_shared(is_shared):
        return tf.function(call, autograph=False).get_concrete_function(
            **{
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in signature.specs.items()
            }
        )


@contextlib.contextmanager
def tracing(signature: Signature) -> Iterator[None]:
    """Raises errors of the model's own code as an `ExportError`."""
    import tensorflow as tf

    _check_steps(signature)
    # Keras leaves the calls of its layers out, and so which layer it was.
    is_filtering = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    try:
        with kept_names():
            yield
    except ExportError:
        raise
    except Exception as error:  # of the user's code
        # The innermost layer, or other operation, that raised it.
        where = remedy = ""
        for frame, _ in traceback.walk_tb(error.__traceback__):
            each = frame.f_locals.get("self")
            if isinstance(each, keras.Operation):
                where = f", in {type(each).__name__} '{each.name}'"
        reason: Any = error
        if isinstance(error, tf.errors.OperatorNotAllowedInGraphError):
            reason = "its Python code needs a number that only a run knows"
        shapes = [x.shape[1:] for x in signature.specs.values()]
        if "scope name has to match" in str(error):
            remedy = "\nRename it"
        elif reason is not error or any(None in x for x in shapes):
            remedy = (
                "\nIf an operation needs sizes that are known, give them in "
                "the signature, such as `signatures={'serving_default': "
                "(model, {'image': (None, 64, 64, 3)})}`"
            )
        raise ExportError(
            f"Model '{signature.model.name}' cannot be traced as a graph of "
            f"signature '{signature.name}'{where}: {reason}{remedy}"
        ) from error
    finally:
        if is_filtering:
            keras.config.enable_traceback_filtering()


def _check_steps(signature: Signature) -> None:
    """Raises `ExportError` for a `TimeDistributed` of dynamic length."""
    # In such a graph Keras runs as many steps as the batch has examples.
    specs = signature.specs.values()
    if not any(x.dtype == "string" or None in x.shape[1:2] for x in specs):
        return
    for layer in layers_within(signature.model):
        if isinstance(layer, keras.layers.TimeDistributed):
            raise ExportError(
                f"Keras computes TimeDistributed '{layer.name}' wrongly in "
                "graphs of any length: give one, such as `signatures="
                "{'serving_default': (model, {'x': (None, 64, 8)})}`, or call "
                "its layer without it, as Dense takes sequences as well"
            )
