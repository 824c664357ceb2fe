"""The average of tokens, of which later ones count more."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.masks import hide_padding
from keras_posenc.ops.named import config_of
from keras_posenc.ops.reductions import smallest
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class WeightedAveragePooling1D(Pooling1D):
    """Averages the unmasked tokens of each row with weights 1, 2, 3, ...

    Weights are counted from the first unmasked token, so padding may be on
    either side; a masked token between others keeps its number. Zeros if a row
    has no token. Sums are computed in float32 or higher. In models that attend
    only to earlier tokens, later ones know more of the text.

    Args:
        start: The weight of the first unmasked token.
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
    >>> tokens = np.array([[[1.0], [4.0], [100.0]]], "float32")
    >>> pooling = kp.WeightedAveragePooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    3.0

    References:
        - [Muennighoff, 2022](https://arxiv.org/abs/2202.08904), equation 2
    """

    def __init__(self, *, start: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start = check_positive_int("start", start)

    def pool(self, x: Any, mask: Any) -> Any:
        x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
        length = ops.shape(x)[1]
        places = ops.arange(length, dtype="int32")
        found = ops.where(mask, places, ops.full_like(places, length))
        places = places - smallest(found, axis=1, keepdims=True) + self.start
        weights = ops.where(mask, places, ops.zeros_like(places))
        weights = ops.cast(weights, x.dtype)
        total = ops.sum(
            hide_padding(x, mask) * ops.expand_dims(weights, -1), axis=1
        )
        count = ops.sum(weights, axis=1, keepdims=True)
        return total / ops.maximum(count, ops.ones_like(count))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
