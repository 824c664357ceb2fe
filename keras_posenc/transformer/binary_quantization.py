"""Vectors as bits, for an index of 1/32 of the size."""

from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._rounded_vectors import RoundedVectors

_VALUES = (128, 64, 32, 16, 8, 4, 2, 1)  # of the bits of an integer


@keras.saving.register_keras_serializable(package="keras_posenc")
class BinaryQuantization(RoundedVectors):
    """Keeps the sign of each number, a bit that is 1 above 0, 8 to a byte.

    The bytes are those of `numpy.packbits`, and of sentence-transformers'
    `precision="ubinary"`: the first number is the highest bit of the first
    byte, and zeros fill the last byte. The number of bits that differ (Hamming
    distance) ranks vectors about as their angle does, if their numbers are
    centred on 0.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, dim)`.

    Returns:
        `(batch, ceil(dim / 8))`, uint8. NaN counts as not above 0.

    Raises:
        ValueError: Inputs are not floats of rank 2.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> vectors = np.array([[0.5, -0.5, 0.1, 0.0, 0.0, 0.0, 0.0, 0.2]])
    >>> print(np.array(kp.BinaryQuantization()(vectors)))
    [[161]]
    """

    rounded_dtype = "uint8"

    def width(self, dim: int) -> int:
        return -(-dim // 8)

    def relative(self, x: Any) -> Any:
        return x / self.divisor(self.size(self.finite(x)))

    def rounded(self, x: Any) -> Any:
        return self._packed(self._in_eights(x) > 0, x)

    def settled(self, x: Any, outputs: Any, tolerance: Any) -> Any:
        size = ops.expand_dims(self.size(self.finite(x)), -1)  # 1, or 0
        values = ops.cast(_VALUES, "int32")
        others = ops.cast(ops.expand_dims(outputs, -1), "int32")
        others = ops.bitwise_and(others, values) > 0
        dim = x.shape[-1]
        bits = self._in_eights(x)
        is_tie = ops.absolute(bits) < ops.cast(tolerance, x.dtype) * size
        is_real = ops.arange(8 * self.width(dim)) < dim
        is_tie = ops.logical_and(is_tie, ops.reshape(is_real, (1, -1, 8)))
        found = self._packed(ops.where(is_tie, others, bits > 0), x)
        return ops.cast(found, self.rounded_dtype)

    def _in_eights(self, x: Any) -> Any:
        """Returns vectors as (batch, width, 8), with zeros at the end."""
        batch, dim = ops.shape(x)[0], x.shape[-1]
        count = self.width(dim)
        filled = ops.pad(x, ((0, 0), (0, 8 * count - dim)))
        return ops.reshape(filled, (batch, count, 8))

    def _packed(self, bits: Any, x: Any) -> Any:
        # 0 or 1 times a power of 2 in floats, which each runtime adds exactly.
        values = ops.cast(_VALUES, x.dtype)
        return ops.sum(ops.where(bits, values, ops.zeros_like(values)), axis=-1)
