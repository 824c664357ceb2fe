"""Layers of vectors: their length, their width, and integers of 8 bits."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import check_inputs
from keras_posenc.ops.named import ConfiguredLayer, NamedArguments
from keras_posenc.ops.reductions import largest, unit_vectors

_BITS = (128, 64, 32, 16, 8, 4, 2, 1)  # the values of those of an integer


@keras.saving.register_keras_serializable(package="keras_posenc")
class L2Normalization(NamedArguments, keras.Layer):
    """Divides vectors by their length; zeros stay zeros, in exports too.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> vectors = np.array([[3.0, 4.0], [0.0, 0.0]], "float32")
    >>> print(np.array(kp.L2Normalization()(vectors)))
    [[0.6 0.8]
     [0.  0. ]]

    Keras's `UnitNormalization` multiplies by the inverse of the length, which
    for zeros is NaN in LiteRT. Sums are computed in float32 or higher.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(..., dim)`.

    Returns:
        The same shape, in the compute dtype. The mask passes through.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return ops.cast(unit_vectors(inputs), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)


@keras.saving.register_keras_serializable(package="keras_posenc")
class Truncation(ConfiguredLayer, keras.Layer):
    """Keeps the first `dim` numbers of vectors.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> print(np.array(kp.Truncation(2)(np.array([[3.0, 4.0, 5.0]]))))
    [[3. 4.]]

    A Matryoshka model is trained so that these are a good, shorter vector. Cut
    vectors are no longer of length 1: `L2Normalization` may follow.

    Args:
        dim: How many numbers are kept.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Tensor of shape `(..., width)`.

    Returns:
        `(..., dim)`. The mask passes through.

    Raises:
        ValueError: `dim` is not a positive integer, or is above the width.

    References:
        - [Kusupati et al., 2022](https://arxiv.org/abs/2205.13147)
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = check_positive_int("dim", dim)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        self.compute_output_shape(inputs.shape)
        return inputs[..., : self.dim]

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        *axes, width = input_shape
        if width is None or width < self.dim:
            raise ValueError(
                f"Truncation '{self.name}' keeps {self.dim} numbers, and needs "
                "inputs of a known width of at least as many. Received: inputs "
                f"of shape {tuple(input_shape)}"
            )
        return (*axes, self.dim)


class RoundedVectors(NamedArguments, keras.Layer):
    """Base of layers that round vectors `(batch, dim)` to integers.

    A subclass has `rounded_dtype`, that of its outputs; `width(dim)`, how many
    integers a vector becomes; and `rounded(x)`, which rounds floats.
    """

    rounded_dtype: str
    width: Callable[[int], int]
    rounded: Callable[[Any], Any]

    @staticmethod
    def finite(x: Any) -> Any:
        """Returns vectors with 0 instead of NaN and infinities."""
        # A cast makes another integer of NaN in each runtime.
        is_finite = ops.absolute(x) < float("inf")
        return ops.where(is_finite, x, ops.zeros_like(x))

    def call(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        return ops.cast(self.rounded(x), self.rounded_dtype)

    def compute_output_spec(self, inputs: Any) -> Any:
        check_inputs(self, inputs, ("batch", "dim"))
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.rounded_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, dim = input_shape
        return (batch, self.width(dim))


@keras.saving.register_keras_serializable(package="keras_posenc")
class Int8Quantization(RoundedVectors):
    """Scales each vector so that its largest number is 127 or -127, and rounds.

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
    """

    rounded_dtype = "int8"

    def width(self, dim: int) -> int:
        return dim

    def rounded(self, x: Any) -> Any:
        x = self.finite(x)
        size = largest(ops.absolute(x), axis=-1, keepdims=True)
        return ops.round(x / ops.where(size > 0, size, 1.0) * 127)


@keras.saving.register_keras_serializable(package="keras_posenc")
class BinaryQuantization(RoundedVectors):
    """Keeps the sign of each number, a bit that is 1 above 0, 8 to a byte.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> vectors = np.array([[0.5, -0.5, 0.1, 0.0, 0.0, 0.0, 0.0, 0.2]])
    >>> print(np.array(kp.BinaryQuantization()(vectors)))
    [[161]]

    The bytes are those of `numpy.packbits`, and of sentence-transformers'
    `precision="ubinary"`: the first number is the highest bit of the first
    byte, and zeros fill the last byte. The number of bits that differ (Hamming
    distance) ranks vectors about as their angle does, if their numbers are
    centered on 0.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, dim)`.

    Returns:
        `(batch, ceil(dim / 8))`, uint8. NaN counts as not above 0.

    Raises:
        ValueError: Inputs are not floats of rank 2.
    """

    rounded_dtype = "uint8"

    def width(self, dim: int) -> int:
        return -(-dim // 8)

    def rounded(self, x: Any) -> Any:
        batch, dim = ops.shape(x)[0], x.shape[-1]
        count = self.width(dim)
        filled = ops.pad(x, ((0, 0), (0, 8 * count - dim)))
        bits = ops.reshape(filled, (batch, count, 8)) > 0
        # 0 or 1 times a power of 2 in floats, which each runtime adds exactly.
        values = ops.cast(_BITS, x.dtype)
        return ops.sum(ops.where(bits, values, ops.zeros_like(values)), axis=-1)
