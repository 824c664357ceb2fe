"""Vectors of length 1, in every file that a model is exported to."""

from typing import Any

import keras
from keras import ops

# The square of what torch adds nothing to, but holds the length to.
_SMALLEST = 1e-24


@keras.saving.register_keras_serializable(package="keras_posenc")
class UnitLength(keras.layers.UnitNormalization):
    """`UnitNormalization` of the last axis, whose zeros stay zeros in LiteRT.

    Keras's own takes 1/√0 and bounds it then, which LiteRT makes NaN of. Rows
    of nothing but padding are pooled to zeros.
    """

    def call(self, inputs: Any) -> Any:
        x = ops.cast(inputs, "float32")
        squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(ops.maximum(squares, _SMALLEST))
        return ops.cast(x, self.compute_dtype)
