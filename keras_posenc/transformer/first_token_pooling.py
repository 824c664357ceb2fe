"""The first token of a sequence, which is `[CLS]` in BERT."""

from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class FirstTokenPooling1D(Pooling1D):
    """The vector of the first token of each row, `[CLS]` in BERT.

    Expects padding at the end: the first token is taken, masked or not. If the
    sequence is empty, returns zeros.

    Args:
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry. It has no effect.

    Returns:
        `(batch, dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: Inputs are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> float(kp.FirstTokenPooling1D()(tokens)[0, 0])
    1.0
    """

    def pool(self, x: Any, mask: Any) -> Any:
        # Equal to `x[:, 0]`, which fails where there is no token.
        return ops.sum(x[:, :1], axis=1)
