"""Layers that exports compute in another way than Keras."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def over_any_length(layer: Any) -> Callable[..., Any] | None:
    """Returns what to call instead of a layer, or None if that is correct.

    Keras's `TimeDistributed` counts its steps before it swaps batch and time.
    With a static length it does not use that number. In a graph of dynamic
    length it runs as many steps as the batch has examples, so its SavedModel
    returns one step of each sequence in a batch of one.

    Here the steps of all sequences are one batch then, as in Keras 2. A layer
    whose outputs depend on the other examples of a batch differs. Verification
    shows that: a file is compared with the graphs of static lengths.
    """
    timed = keras.layers.TimeDistributed
    own = getattr(layer, "call", None)
    if getattr(own, "__func__", None) is not timed.call:
        return None
    inner = over_any_length(layer.layer) or layer.layer.call
    known = inspect.signature(inner).parameters

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if inputs.shape[1] is not None:
            return timed.call(layer, inputs, training=training, mask=mask)
        options = {"training": training}
        if mask is not None:
            options["mask"] = _flat(mask)
        options = {name: x for name, x in options.items() if name in known}
        outputs = inner(_flat(inputs), **options)
        # (batch * seq, ...) -> (batch, seq, ...)
        sizes = ops.shape(inputs)[:2] + ops.shape(outputs)[1:]
        return ops.reshape(outputs, sizes)

    return call


def _flat(tensor: Any) -> Any:
    """Reshapes (batch, seq, ...) to (batch * seq, ...)."""
    return ops.reshape(tensor, (-1, *ops.shape(tensor)[2:]))


def by_groups(layer: Any) -> Callable[..., Any] | None:
    """Returns what to call instead of a `Conv3D` with groups, or None.

    LiteRT and tf2onnx have groups in one and two dimensions alone.
    """
    if (
        type(layer) is not keras.layers.Conv3D
        or layer.groups == 1
        or layer.data_format != "channels_last"
    ):
        return None

    def call(inputs: Any) -> Any:
        tensors = inputs, layer.kernel
        groups = [ops.split(each, layer.groups, -1) for each in tensors]
        parts = map(layer.convolution_op, *groups)
        outputs = ops.concatenate([*parts], -1)
        if layer.use_bias:
            outputs = outputs + layer.bias
        return keras.activations.get(layer.activation)(outputs)

    return call
