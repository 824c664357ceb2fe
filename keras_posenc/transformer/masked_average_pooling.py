"""The average of the real tokens of a sequence."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.masks import hide_padding
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class MaskedAveragePooling1D(Pooling1D):
    """Averages the unmasked tokens of each row; zeros if there are none.

    Keras's `GlobalAveragePooling1D` divides 0 by 0 if a row is all padding.
    Sums are computed in float32 or higher.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one every token counts.

    Returns:
        `(batch, dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: Inputs are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.MaskedAveragePooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    2.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        total = ops.sum(hide_padding(x, mask), axis=1)
        count = ops.sum(ops.cast(mask, x.dtype), axis=1, keepdims=True)
        return total / ops.maximum(count, ops.ones_like(count))
