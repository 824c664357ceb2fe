"""The maximum over the real tokens of a sequence."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.reductions import largest
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class MaskedMaxPooling1D(Pooling1D):
    """Takes the maximum of each feature over the unmasked tokens of a row.

    Zeros if a row has none. Keras's `GlobalMaxPooling1D` includes padding.

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
    >>> pooling = kp.MaskedMaxPooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        lowest = ops.full_like(x, float("-inf"))
        found = largest(ops.where(ops.expand_dims(mask, -1), x, lowest), axis=1)
        has_tokens = ops.any(mask, axis=1, keepdims=True)
        return ops.where(has_tokens, found, ops.zeros_like(found))
