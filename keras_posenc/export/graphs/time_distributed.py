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
    """Goes through the steps one by one, as Keras does where it knows them.

    Where `data_dependent_shapes` is False, as `to_float32` sets it for LiteRT
    and ONNX, which may not have the loop, it takes the steps of all sequences
    as one batch, as Keras 2 did. A layer whose outputs depend on the other
    examples of a batch gives others by it. Verification shows that: the model
    is in float32 then, so that the file is compared with its eager code.
    """

    layer: keras.Layer
    data_dependent_shapes = True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if inputs.shape[1] is not None:
            timed: Any = super()
            return timed.call(inputs, training=training, mask=mask)
        known = inspect.signature(self.layer.call).parameters

        def call(tensor: Any, mask: Any = None) -> Any:
            options = {"training": training, "mask": mask}
            return self.layer.call(
                tensor,
                **{
                    name: value
                    for name, value in options.items()
                    if name in known and (name != "mask" or value is not None)
                },
            )

        tensors = [inputs] if mask is None else [inputs, mask]
        if self.data_dependent_shapes:
            # (batch, seq, ...) -> (seq, batch, ...), and back
            steps = [ops.swapaxes(each, 0, 1) for each in tensors]
            outputs = ops.vectorized_map(lambda step: call(*step), steps)
            return ops.swapaxes(outputs, 0, 1)
        outputs = call(*map(_flat, tensors))
        # (batch * seq, ...) -> (batch, seq, ...)
        sizes = ops.shape(inputs)[:2] + ops.shape(outputs)[1:]
        return ops.reshape(outputs, sizes)


def _flat(tensor: Any) -> Any:
    """From (batch, seq, ...) to (batch * seq, ...)."""
    return ops.reshape(tensor, (-1, *ops.shape(tensor)[2:]))
