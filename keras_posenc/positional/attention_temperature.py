"""Llama 4's temperature of attention, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.ops.temperature import floored_log_temperature
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class AttentionTemperature(AttentionPosition):
    """Multiplies queries by a factor that grows slowly with their position.

    A softmax over many keys is flat; the factor
    `1 + attn_scale * log(1 + floor((position + 1) / floor_scale))` keeps it
    sharp in texts longer than `floor_scale`. Keys stay as they are, so the
    order of the tokens is left to another position (`CombinedPosition`), to
    another block, or to the causal mask. Positions below 0 count as 0.

    Args:
        attn_scale: The growth with the logarithm.
        floor_scale: So many positions in a row have the same factor, which is
            1 for all but the last one of the first `floor_scale`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument.

    Example:
    Blocks without rotation, as in Llama 4:

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> rotary = kp.RotaryEmbedding(max_wavelength=500_000)
    >>> kinds = 3 * [rotary] + [kp.positions.AttentionTemperature()]
    >>> encoder = kp.TransformerEncoder(
    ...     4, num_heads=4, attention_position=kinds
    ... )
    >>> x = np.ones((2, 10, 64), "float32")
    >>> tuple(encoder(x, use_causal_mask=True).shape)
    (2, 10, 64)

    References:
        - Llama 4's `attn_temperature_tuning`, in Hugging Face's transformers.
    """

    is_absolute = True
    counts_keys = True

    def __init__(
        self,
        attn_scale: float = 0.1,
        *,
        floor_scale: float = 8192.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attn_scale = check_positive("attn_scale", attn_scale)
        self.floor_scale = check_positive("floor_scale", floor_scale)

    def rotate(self, x: Any, positions: Any) -> Any:
        dtype = arithmetic_dtype(x)
        return ops.cast(x, dtype) * floored_log_temperature(
            positions,
            attn_scale=self.attn_scale,
            floor_scale=self.floor_scale,
            dtype=dtype,
        )

    def rotate_keys(self, x: Any, positions: Any) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
