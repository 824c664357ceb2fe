"""Scalable softmax, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.ops.temperature import log_temperature
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class ScalableSoftmax(AttentionPosition):
    """Multiplies scores by the logarithm of the number of keys.

    The factor is `s * log(n)`, with a learned `s` for each head: then the
    largest weight does not fade in longer texts. `n` is the position of the
    query plus 1, the number of keys that it sees in causal attention. Keys stay
    as they are, so the order of the tokens is left to another position
    (`CombinedPosition`), or to the causal mask. Positions below 0 count as 0.

    Args:
        initial_scale: The initial `s`; 0.43 in the paper's first figure.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of another number of heads
            than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> kinds = ["rotary", kp.positions.ScalableSoftmax()]
    >>> position = kp.positions.CombinedPosition(kinds)
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> x = np.ones((2, 10, 16), "float32")
    >>> tuple(layer(x, use_causal_mask=True).shape)
    (2, 10, 16)

    References:
        - [Nakanishi, 2025](https://arxiv.org/abs/2501.19399)
    """

    is_absolute = True
    counts_keys = True

    def __init__(self, initial_scale: float = 0.43, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initial_scale = check_positive("initial_scale", initial_scale)

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(
            shape=(input_shape[1],),
            initializer=keras.initializers.Constant(self.initial_scale),
            name="scale",
        )
        self.built = True

    def rotate(self, x: Any, positions: Any) -> Any:
        check_built_for(self, "heads", self.scale.shape[0], x.shape[1])
        dtype = arithmetic_dtype(x)
        return ops.cast(x, dtype) * log_temperature(
            positions, scale=self.scale, dtype=dtype
        )

    def rotate_keys(self, x: Any, positions: Any) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
