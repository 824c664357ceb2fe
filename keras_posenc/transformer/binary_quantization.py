"""Vectors as bits, for an index of 1/32 of the size."""

from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._rounded_vectors import RoundedVectors


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

    def rounded(self, x: Any, given: Any) -> Any:
        # 0 or 1 times a power of 2 in floats, which each runtime adds exactly.
        values = ops.cast([128, 64, 32, 16, 8, 4, 2, 1], x.dtype)
        batch, dim = ops.shape(x)[0], x.shape[-1]
        size = ops.expand_dims(self.size(self.finite(x)), -1)
        count = self.width(dim)
        filled = ops.pad(x, ((0, 0), (0, 8 * count - dim)))
        x = ops.reshape(filled, (batch, count, 8))
        bits = x > 0
        if given is not None:
            outputs, tolerance = given
            outputs = ops.expand_dims(ops.cast(outputs, "int32"), -1)
            others = ops.bitwise_and(outputs, ops.cast(values, "int32")) > 0
            is_tie = ops.absolute(x) < ops.cast(tolerance, x.dtype) * size
            is_real = ops.reshape(ops.arange(8 * count) < dim, (1, count, 8))
            is_tie = ops.logical_and(is_tie, is_real)
            bits = ops.where(is_tie, others, bits)
        return ops.sum(ops.where(bits, values, ops.zeros_like(x)), axis=-1)
