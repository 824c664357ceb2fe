"""Attention with linear biases, as a layer."""

from typing import Any

import keras

from keras_posenc.checks import check_bool, check_positive
from keras_posenc.ops.alibi import alibi_bias, alibi_slopes
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class AlibiBias(AttentionPosition):
    """Scores fall linearly with the distance, with a slope for each head.

    Head `h` of `n` has the slope `2 ** (-alibi_bias_max * h / n)`, counted
    from 1; numbers of heads that are not a power of two have the slopes of the
    published code. The layer has no weights and works for any length. Distances
    are integers, or float32 if positions are floats, whatever the compute
    dtype.

    Args:
        alibi_bias_max: The last slope is 2 to the power of minus this.
        bidirectional: Whether scores also fall towards later keys, as needed
            in an encoder. If False, later keys have distance 0: for use with
            `use_causal_mask=True`, where it has no effect.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.SelfAttention(12, attention_position=kp.AlibiBias())
    >>> tuple(layer(np.ones((2, 10, 24), "float32")).shape)
    (2, 10, 24)

    References:
        - [Press et al., 2021](https://arxiv.org/abs/2108.12409)
    """

    def __init__(
        self,
        alibi_bias_max: float = 8.0,
        *,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alibi_bias_max = check_positive("alibi_bias_max", alibi_bias_max)
        self.bidirectional = check_bool("bidirectional", bidirectional)

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        return alibi_bias(
            query_positions,
            key_positions,
            slopes=alibi_slopes(
                query.shape[1], alibi_bias_max=self.alibi_bias_max
            ),
            bidirectional=self.bidirectional,
            dtype=arithmetic_dtype(query),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
