"""Kernelized relative biases, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_choice
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import (
    arithmetic_dtype,
    distances,
    nan_where_unknown,
)
from keras_posenc.ops.learned_biases import kerple_log, kerple_power
from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class KerpleBias(AttentionPosition):
    """Scores fall with the distance, along a curve that each head learns.

    `-scale * log(1 + rate * distance)`, or `-scale * distance ** exponent`,
    with two numbers for each head, for any length. Scale and rate are
    exponentials of the weights, and the exponent is twice their sigmoid: so
    they stay in the ranges for which the paper defines its kernels. All are 1
    initially.

    Args:
        variant: `"log"`, which the paper found best, or `"power"`.
        bidirectional: Whether scores also fall towards later keys. If False,
            later keys have distance 0: for use with `use_causal_mask=True`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.KerpleBias()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Chi et al., 2022](https://arxiv.org/abs/2205.09921)
    """

    def __init__(
        self,
        variant: str = "log",
        *,
        bidirectional: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.variant = check_choice("variant", variant, ("log", "power"))
        self.bidirectional = check_bool("bidirectional", bidirectional)

    def build(self, input_shape: Any) -> None:
        heads = (input_shape[1],)
        self.log_scale = self.add_weight(
            shape=heads, initializer="zeros", name="log_scale"
        )
        if self.variant == "log":
            self.log_rate = self.add_weight(
                shape=heads, initializer="zeros", name="log_rate"
            )
        else:
            self.exponent_logit = self.add_weight(
                shape=heads, initializer="zeros", name="exponent_logit"
            )
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        check_built_for(self, "heads", self.log_scale.shape[0], query.shape[1])
        dtype = arithmetic_dtype(query)
        distance = distances(
            query_positions,
            key_positions,
            bidirectional=self.bidirectional,
            dtype=dtype,
        )
        scale = ops.exp(ops.cast(self.log_scale, dtype))
        if self.variant == "log":
            rate = ops.exp(ops.cast(self.log_rate, dtype))
            return kerple_log(distance, scale=scale, rate=rate)
        exponent = 2 * ops.sigmoid(ops.cast(self.exponent_logit, dtype))
        # Not a power of NaN: 0 is separated, and LiteRT's exponential fails.
        return nan_where_unknown(
            kerple_power(distance, scale=scale, exponent=exponent),
            query_positions=query_positions,
            key_positions=key_positions,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
