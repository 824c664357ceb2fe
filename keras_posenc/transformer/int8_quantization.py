"""Vectors as integers of 8 bits, for an index of a quarter of the size."""

from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._rounded_vectors import RoundedVectors


@keras.saving.register_keras_serializable(package="keras_posenc")
class Int8Quantization(RoundedVectors):
    """Scales each vector so that its largest number is 127 or -127, and rounds.

    Vectors need no calibration, and the direction is kept: the cosine of two
    vectors is that of their integers, up to rounding. Each number is off by at
    most 0.5, that is 1/254 of the vector's largest number. The length is lost.

    Each vector has its own scale, so a plain product of the integers ranks
    wrongly. Compare them by cosine: cast to float32, and divide by the norms
    first, as in the example.

    Zeros stay zeros. A number that is not finite becomes 0.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, dim)`.

    Returns:
        `(batch, dim)`, int8.

    Raises:
        ValueError: Inputs are not floats of rank 2.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> vectors = np.array([[0.6, -0.8], [1.0, 0.0]], "float32")
    >>> integers = np.array(kp.Int8Quantization()(vectors))
    >>> print(integers)
    [[  95 -127]
     [ 127    0]]
    >>> units = integers.astype("float32")
    >>> units /= np.linalg.norm(units, axis=-1, keepdims=True)
    >>> print(np.round(units @ units.T, 2))
    [[1.  0.6]
     [0.6 1. ]]
    """

    rounded_dtype = "int8"

    def width(self, dim: int) -> int:
        return dim

    def relative(self, x: Any) -> Any:
        x = self.finite(x)
        return x / self.divisor(self.size(x))

    def rounded(self, x: Any) -> Any:
        return ops.round(self.relative(x) * 127)

    def settled(self, x: Any, outputs: Any, tolerance: Any) -> Any:
        exact = x * 127
        others = ops.cast(outputs, x.dtype)
        # A number and its vector's largest may each be off by the tolerance.
        near = 0.5 + 2 * 127 * ops.cast(tolerance, x.dtype)
        is_tie = ops.absolute(exact - others) <= near
        found = ops.where(is_tie, others, ops.round(exact))
        return ops.cast(found, self.rounded_dtype)
