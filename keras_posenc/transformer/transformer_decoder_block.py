"""One block of the decoder: attention, cross-attention, feed-forward."""

from typing import Any

import keras

from keras_posenc.ops.arguments import check_bool
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._block import Block
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._decoding_layer import (
    DecodingLayer,
    check_cross_attention_position,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerDecoderBlock(Block, DecodingLayer):
    """Causal self-attention, cross-attention and feed-forward.

    Each with a residual and a norm. Post-norm, as in the paper:
    `x = norm(x + attention(x))`; pre-norm (`normalize_first=True`):
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs.
        intermediate_dim: Width of the feed-forward part.
        use_cross_attention: Whether the block attends to a memory. If not, it
            is that of a decoder-only model, and is called without `memory`.
        dropout: Rate of the dropout on the attention weights and behind each
            part, in [0, 1).
        activation: Activation of the feed-forward part.
        normalize_first: Whether each part normalises what it takes (pre-norm)
            or the sum that it gives (post-norm).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        attention_position: An `AttentionPosition` of the self-attention, the
            name of a kind, such as `"rotary"`, or None.
        cross_attention_position: That of the cross-attention, as
            `CrossAttention` takes it, or None.
        memory_dim: Width of the memory; by default that of the inputs.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `SelfAttention`, where `use_causal_mask` is True
    by default, and:
        memory: Float tensor of shape `(batch, source, memory_dim)`.
        memory_positions: Where its tokens stand, as in `CrossAttention`.
        memory_segment_ids: Integers `(batch, source)`, as in `CrossAttention`.
        memory_mask: Bool `(batch, source)`, True for a token; by default the
            mask that the memory carries.
        memory_attention_mask: Bool `(batch, seq, source)`: which token may
            read which of the memory.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` also the weights of the self-attention,
        `(batch, num_heads, seq, seq)`, and of the cross-attention,
        `(batch, num_heads, seq, source)`, where there is one.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerDecoderBlock(num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(block(target, memory=memory).shape)
    (2, 5, 16)

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
        use_cross_attention: bool = True,
        dropout: float = 0.1,
        activation: Any = "relu",
        normalize_first: bool = False,
        norm_epsilon: float = 1e-5,
        norm: str = "layer",
        use_bias: bool = True,
        use_gate: bool = False,
        num_key_value_heads: int | None = None,
        attention_position: AttentionPosition | str | None = None,
        cross_attention_position: AttentionPosition | str | None = None,
        memory_dim: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        for name, value in (
            ("cross_attention_position", cross_attention_position),
            ("memory_dim", memory_dim),
        ):
            if value is not None and use_cross_attention is False:
                raise ValueError(
                    f"`{name}` needs use_cross_attention=True. "
                    f"Received: {name}={value!r}"
                )
        across = None
        if check_bool("use_cross_attention", use_cross_attention):
            across = {
                "attention_position": check_cross_attention_position(
                    cross_attention_position,
                    kwargs.get("dtype"),
                    "cross_attention_position",
                ),
                "memory_dim": memory_dim,
            }
        super().__init__(
            num_heads,
            across=across,
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
        self.use_cross_attention = use_cross_attention
        self.cross_attention_position = (
            self.cross_attention and self.cross_attention.attention_position
        )
        self.memory_dim = memory_dim

    def attend_cached(
        self,
        x: Any,
        context: Context,
        cache: dict[str, Any],
        remembered: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """What tokens get that go on after others, and the cache with them.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            cache: Of the self-attention.
            remembered: What the cross-attention kept of the memory, if any.
        """

        def attention(x: Any) -> Any:
            nonlocal cache
            outputs, cache = self.attention.attend_cached(x, context, cache)
            return outputs

        def cross_attention(x: Any) -> Any:
            assert self.cross_attention is not None
            assert context.memory is not None
            assert remembered is not None
            return self.cross_attention.read(
                x,
                context.memory,
                remembered,
                return_attention_scores=False,
                training=False,
            )

        x = self.add_parts(x, attention, cross_attention, False)
        return x, cache

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "use_cross_attention": self.use_cross_attention,
            "cross_attention_position": keras.saving.serialize_keras_object(
                self.cross_attention_position
            ),
            "memory_dim": self.memory_dim,
        }
