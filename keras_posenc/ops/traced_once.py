"""Parts of a graph that TensorFlow traces once and calls many times."""

from collections.abc import Callable
from typing import Any

import keras

from keras_posenc.keras_internals import is_compiled_by_xla


def traced_once(
    function: Callable[..., Any],
    *tensors: Any,
    known: dict[Any, Any],
    key: tuple[Any, ...],
) -> Any:
    """Returns `function(*tensors)`; in a graph it is one call of a function.

    The blocks of a model make the same operators again and again. Tracing these
    takes most of the time until a deep model first runs.

    Args:
        function: Computes nothing else from the same tensors, key and `known`.
        *tensors: Its arguments, at least one.
        known: Keeps what was traced: a dict of all calls that may share it,
            which are in one graph.
        key: Tells apart other functions in the same dict.
    """
    if keras.config.backend() != "tensorflow":
        return function(*tensors)
    import tensorflow as tf

    if not tf.is_symbolic_tensor(tensors[0]) or is_compiled_by_xla(tensors[0]):
        return function(*tensors)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in tensors]
    key = (*key, *((tuple(spec.shape), spec.dtype) for spec in specs))
    if key not in known:
        traced = tf.function(function, autograph=False)
        known[key] = traced.get_concrete_function(*specs)
    return known[key](*tensors)


def called(function: Callable[[], Any]) -> Any:
    """Returns `function()`, which remains a call in a TensorFlow graph.

    TensorFlow prepares everything for the first run, also what hardly ever
    runs; but a function that remains a call only as it is called, and once for
    all its calls.
    """
    import tensorflow as tf

    if tf.executing_eagerly():
        return function()
    return tf.function(
        function,
        autograph=False,
        experimental_attributes={"_noinline": True},
    )()
