"""One block of the encoder: attention, then feed-forward."""

from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive,
    check_sequence_shape,
)
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import AttentionLayer
from keras_posenc.transformer._bfloat16 import warn_of_slow_bfloat16
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._sublayers import (
    make_norm,
    options_of,
    projection_config,
    projection_options,
)
from keras_posenc.transformer.feed_forward import FeedForward
from keras_posenc.transformer.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerEncoderBlock(AttentionLayer):
    """Self-attention and feed-forward, each with a residual and a norm.

    Post-norm, as in the paper: `x = norm(x + attention(x))`. Pre-norm
    (`normalize_first=True`), which trains more steadily when deep:
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs.
        intermediate_dim: Width of the feed-forward part.
        dropout: Rate of the dropout on the attention weights and behind each
            half, in [0, 1).
        activation: Activation of the feed-forward part.
        normalize_first: Whether each half normalises what it takes (pre-norm)
            or the sum that it gives (post-norm).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        attention_position: An `AttentionPosition`, or None.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerEncoderBlock(num_heads=4, intermediate_dim=32)
    >>> tuple(block(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) (post-norm)
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
        - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467) (RMS)
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        normalize_first: bool = False,
        norm_epsilon: float = 1e-5,
        norm: str = "layer",
        use_bias: bool = True,
        use_gate: bool = False,
        num_key_value_heads: int | None = None,
        attention_position: AttentionPosition | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.normalize_first = check_bool("normalize_first", normalize_first)
        self.norm_epsilon = check_positive("norm_epsilon", norm_epsilon)
        self.norm = norm
        options = projection_options(
            self,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        common = {
            "dropout": dropout,
            "use_bias": use_bias,
            "dtype": self.dtype_policy,
        }
        self.attention = SelfAttention(
            num_heads,
            num_key_value_heads=num_key_value_heads,
            attention_position=attention_position,
            name="attention",
            **common,
            **options_of(options, "attention"),
        )
        self.feed_forward = FeedForward(
            intermediate_dim,
            activation=activation,
            use_gate=use_gate,
            name="feed_forward",
            **common,
            **options_of(options, "feed_forward"),
        )
        self.num_heads = self.attention.num_heads
        self.num_key_value_heads = self.attention.num_key_value_heads
        self.attention_position = self.attention.attention_position
        self.dropout = self.attention.dropout
        self.use_bias = self.attention.use_bias
        self.intermediate_dim = self.feed_forward.intermediate_dim
        self.activation = self.feed_forward.activation
        self.use_gate = self.feed_forward.use_gate
        self.attention_norm, self.feed_forward_norm = (
            make_norm(norm, self.norm_epsilon, self.dtype_policy, name)
            for name in ("attention_norm", "feed_forward_norm")
        )
        self.dropout_layer = keras.layers.Dropout(
            dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        if self.compute_dtype == "bfloat16":
            warn_of_slow_bfloat16()
        for sublayer in (
            self.attention,
            self.attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
            self.dropout_layer,
        ):
            sublayer.build(tuple(input_shape))
        self.built = True

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        scores = None

        def attention(x: Any) -> Any:
            nonlocal scores
            attended = self.attention(
                x,
                return_attention_scores=return_attention_scores,
                training=training,
                context=context,
            )
            if return_attention_scores:
                attended, scores = attended
            return self.dropout_layer(attended, training=training)

        def feed_forward(x: Any) -> Any:
            return self.feed_forward(x, training=training)

        for half, norm in (
            (attention, self.attention_norm),
            (feed_forward, self.feed_forward_norm),
        ):
            x = x + half(norm(x)) if self.normalize_first else norm(x + half(x))
        return (x, scores) if return_attention_scores else x

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "normalize_first": self.normalize_first,
            "norm_epsilon": self.norm_epsilon,
            "norm": self.norm,
            "use_bias": self.use_bias,
            "use_gate": self.use_gate,
            "num_key_value_heads": self.num_key_value_heads,
            "attention_position": keras.saving.serialize_keras_object(
                self.attention_position
            ),
            **projection_config(self),
        }
