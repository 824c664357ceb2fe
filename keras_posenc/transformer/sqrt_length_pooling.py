"""The sum of tokens, divided by the square root of their number."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.masks import hide_padding
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class SqrtLengthPooling1D(Pooling1D):
    """Divides the sum of the unmasked tokens by the root of their number.

    Zeros if a row has no token. Sums are computed in float32 or higher.
    sentence-transformers calls this `mean_sqrt_len_tokens`.

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
    >>> tokens = np.ones((1, 9, 1), "float32")
    >>> float(kp.SqrtLengthPooling1D()(tokens)[0, 0])
    3.0

    References:
        - [Cer et al., 2018](https://arxiv.org/abs/1803.11175)
    """

    def pool(self, x: Any, mask: Any) -> Any:
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        total = ops.sum(hide_padding(x, mask), axis=1)
        count = ops.sum(ops.cast(mask, x.dtype), axis=1, keepdims=True)
        return total / ops.sqrt(ops.maximum(count, ops.ones_like(count)))
