"""Signatures as graph functions of TensorFlow."""

import contextlib
from collections.abc import Iterator
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import take_over
from keras_posenc.export.signatures.from_model import in_code
from keras_posenc.export.signatures.signature import Signature


def trace(signature: Signature) -> Any:
    """Returns the signature as a TensorFlow graph function of dynamic shapes.

    Raises:
        ExportError: The model's code cannot be traced.
    """
    import tensorflow as tf

    def call(**inputs: Any) -> dict[str, Any]:
        for name, spec in signature.specs.items():
            # Clients may send strings of another rank, at which TF-Text's
            # operators abort the whole server.
            if spec.dtype == "string":
                inputs[name] = tf.ensure_shape(inputs[name], spec.shape)
        return signature.call(inputs)

    with tracing(signature):
        function = tf.function(call, autograph=False).get_concrete_function(
            **{
                name: tf.TensorSpec(spec.shape, spec.dtype, name=name)
                for name, spec in signature.specs.items()
            }
        )
    take_over(function)
    return function


@contextlib.contextmanager
def tracing(signature: Signature) -> Iterator[None]:
    """Raises errors of the model's own code as an `ExportError`."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # of the user's code
        raise ExportError(
            f"Model '{signature.model.name}' cannot be traced as a graph of "
            f"signature '{signature.name}': {error}{_with_sizes(signature)}"
        ) from error


def _with_sizes(signature: Signature) -> str:
    """Returns how to give sizes that operations may need, or ""."""
    shapes = {
        name: (
            *spec.shape[:1],
            *(8 if size is None else size for size in spec.shape[1:]),
        )
        for name, spec in signature.specs.items()
    }
    if all(
        shapes[name] == tuple(signature.specs[name].shape) for name in shapes
    ):
        return ""
    known = bool(getattr(signature.model, "inputs", None))
    dtypes = {name: spec.dtype for name, spec in signature.specs.items()}
    code = in_code({signature.name: shapes}, None if known else dtypes)
    return f"\nIf an operation needs sizes that are known, give {code}"
