"""One block of the encoder: attention, then feed-forward."""

from typing import Any

import keras

from keras_posenc.ops.arguments import check_bool
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._block import Block


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerEncoderBlock(Block):
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
        attention_position: An `AttentionPosition`, the name of a kind, such as
            `"rotary"`, `"alibi"` or `"t5"`, or None.
        attention_window: How many tokens a token sees on either side of
            itself; None for all.
        use_attention_norm: Whether the attention half has its norm.
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
        attention_position: AttentionPosition | str | None = None,
        attention_window: int | None = None,
        use_attention_norm: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            within={"attention_window": attention_window},
            has_attention_norm=check_bool(
                "use_attention_norm", use_attention_norm
            ),
            intermediate_dim=intermediate_dim,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            norm_epsilon=norm_epsilon,
            norm=norm,
            use_bias=use_bias,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            attention_position=attention_position,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            **kwargs,
        )
        self.attention_window = self.attention.attention_window
        self.use_attention_norm = use_attention_norm

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "attention_window": self.attention_window,
            "use_attention_norm": self.use_attention_norm,
        }
