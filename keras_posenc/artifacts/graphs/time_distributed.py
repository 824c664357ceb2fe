"""`TimeDistributed` over a length that the graph does not know."""

import inspect
from typing import Any

import keras
from keras import ops


def over_any_length(kind: Any) -> Any:
    """The class that the copy of a layer is of: its own, or one that is right.

    Keras's `TimeDistributed` counts its steps before it swaps batch and time.
    Where the length is known it does not use that number. In a graph of dynamic
    length it goes through as many steps as the batch has examples, and a
    SavedModel of it gives one step of each sequence in a batch of one.
    """
    timed = keras.layers.TimeDistributed
    if not issubclass(kind, timed) or kind.call is not timed.call:
        return kind
    return type(kind.__name__, (_OverAnyLength, kind), {})


class _OverAnyLength:
    """Takes the steps of all sequences as one batch, as Keras 2 did.

    That needs no loop, which LiteRT and ONNX may not have. A layer whose
    outputs depend on the other examples of a batch gives others by it:
    verification, which compares them with those of Keras's own steps, shows it.
    """

    layer: keras.Layer

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if inputs.shape[1] is not None:
            timed: Any = super()
            return timed.call(inputs, training=training, mask=mask)
        options = {"training": training, "mask": _flat(mask)}
        known = inspect.signature(self.layer.call).parameters
        outputs = self.layer.call(
            _flat(inputs),
            **{
                name: value
                for name, value in options.items()
                if name in known and (name != "mask" or value is not None)
            },
        )
        # (batch * seq, ...) -> (batch, seq, ...)
        sizes = ops.shape(inputs)[:2] + ops.shape(outputs)[1:]
        return ops.reshape(outputs, sizes)


def _flat(tensor: Any) -> Any:
    """From (batch, seq, ...) to (batch * seq, ...)."""
    if tensor is None:
        return None
    return ops.reshape(tensor, (-1, *ops.shape(tensor)[2:]))
