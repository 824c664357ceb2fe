"""The last token of a sequence, which has seen all others in a decoder."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.masks import hide_padding
from keras_posenc.ops.reductions import largest
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class LastTokenPooling1D(Pooling1D):
    """The vector of the last unmasked token of each row; zeros without any.

    Padding may be on either side. Models that attend only to earlier tokens,
    as decoders do, know the whole text at its last token alone.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one the last position is taken.

    Returns:
        `(batch, dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: Inputs are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.LastTokenPooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        # A sum with all other tokens hidden: exact, and unlike a gather its
        # operators are in every runtime.
        places = ops.arange(ops.shape(x)[1], dtype="int32") + 1
        places = ops.where(mask, places, ops.zeros_like(places))
        last = ops.equal(places, largest(places, axis=1, keepdims=True))
        return ops.sum(hide_padding(x, ops.logical_and(mask, last)), axis=1)
