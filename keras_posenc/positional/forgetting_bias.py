"""Forgetting attention, FoX, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.forgetting import forgetting_bias, log_gates
from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class ForgettingBias(AttentionPosition):
    """Scores fall by what the tokens after a key make attention forget.

    Each token has a forget gate in each head, the sigmoid of a linear function
    of the inputs of attention. A score gains the sum of the logarithms of the
    gates after its key, up to its query: a gate near 0 hides all that came
    before it. `positions` have no effect, only the order of the tokens;
    padding forgets nothing. A cache keeps the gates, in float32.

    Args:
        bidirectional: Whether later keys are forgotten too, by the gates after
            the query up to the key; the paper is about causal models. If
            False, later keys are not forgotten: for use with
            `use_causal_mask=True`, where it has no effect.
        kernel_initializer: Initializer of the gates' kernel.
        bias_initializer: Initializer of the gates' bias. Larger values forget
            less initially.
        kernel_regularizer: Regularizer of the gates' kernel, or None.
        bias_regularizer: Regularizer of the gates' bias, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; inputs of another width, or queries of
            another number of heads, than built for; cross-attention.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.ForgettingBias()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Lin et al., 2025](https://arxiv.org/abs/2503.02130)
    """

    def __init__(
        self,
        *,
        bidirectional: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bidirectional = check_bool("bidirectional", bidirectional)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)

    def build(self, input_shape: Any, tokens_shape: Any) -> None:
        heads, width = input_shape[1], tokens_shape[-1]
        self.kernel = self.add_weight(
            shape=(width, heads),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
        )
        self.gate_bias = self.add_weight(
            shape=(heads,),
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            name="bias",
        )
        self.built = True

    def steps(self, x: Any) -> Any:
        check_built_for(self, "width", self.kernel.shape[0], x.shape[-1])
        dtype = arithmetic_dtype(x)
        kernel, bias = (
            ops.cast(weight, dtype) for weight in (self.kernel, self.gate_bias)
        )
        return log_gates(ops.matmul(ops.cast(x, dtype), kernel) + bias)

    def contextual_bias(
        self,
        query: Any,
        key: Any,
        mask: Any,
        query_places: Any,
        key_places: Any,
    ) -> Any:
        return forgetting_bias(
            query_places, key_places, bidirectional=self.bidirectional
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
