"""Division of vectors by their length."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.named import NamedArguments
from keras_posenc.ops.unit_vectors import unit_vectors


@keras.saving.register_keras_serializable(package="keras_posenc")
class L2Normalization(NamedArguments, keras.Layer):
    """Divides vectors by their length; zeros stay zeros, in exports too.

    Keras's `UnitNormalization` multiplies by the inverse of the length, which
    for zeros is NaN in LiteRT. Sums are computed in float32 or higher.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(..., dim)`.

    Returns:
        The same shape, in the compute dtype. The mask passes through.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> vectors = np.array([[3.0, 4.0], [0.0, 0.0]], "float32")
    >>> print(np.array(kp.L2Normalization()(vectors)))
    [[0.6 0.8]
     [0.  0. ]]
    """

    takes_ragged = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return ops.cast(unit_vectors(inputs), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)
