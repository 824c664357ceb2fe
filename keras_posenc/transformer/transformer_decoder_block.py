"""One block of the decoder: attention, cross-attention, feed-forward."""

from collections.abc import Callable
from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive,
    check_sequence_shape,
)
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._bfloat16 import warn_of_slow_bfloat16
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._decoding_layer import (
    DecodingLayer,
    check_cross_attention_position,
)
from keras_posenc.transformer._sublayers import (
    make_norm,
    options_of,
    projection_config,
    projection_options,
)
from keras_posenc.transformer.cross_attention import CrossAttention
from keras_posenc.transformer.feed_forward import FeedForward
from keras_posenc.transformer.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerDecoderBlock(DecodingLayer):
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
        attention_position: An `AttentionPosition` of the self-attention, or
            None.
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
        attention_position: AttentionPosition | None = None,
        cross_attention_position: AttentionPosition | None = None,
        memory_dim: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.use_cross_attention = check_bool(
            "use_cross_attention", use_cross_attention
        )
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
        self.cross_attention = None
        for name, value in (
            ("cross_attention_position", cross_attention_position),
            ("memory_dim", memory_dim),
        ):
            if value is not None and not self.use_cross_attention:
                raise ValueError(
                    f"`{name}` needs use_cross_attention=True. "
                    f"Received: {name}={value!r}"
                )
        if self.use_cross_attention:
            self.cross_attention = CrossAttention(
                num_heads,
                num_key_value_heads=num_key_value_heads,
                attention_position=check_cross_attention_position(
                    cross_attention_position, "cross_attention_position"
                ),
                memory_dim=memory_dim,
                name="cross_attention",
                **common,
                **options_of(options, "cross_attention"),
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
        self.cross_attention_position = (
            self.cross_attention and self.cross_attention.attention_position
        )
        self.memory_dim = memory_dim
        self.dropout = self.attention.dropout
        self.use_bias = self.attention.use_bias
        self.intermediate_dim = self.feed_forward.intermediate_dim
        self.activation = self.feed_forward.activation
        self.use_gate = self.feed_forward.use_gate
        self.attention_norm, self.feed_forward_norm = (
            make_norm(norm, self.norm_epsilon, self.dtype_policy, name)
            for name in ("attention_norm", "feed_forward_norm")
        )
        self.cross_attention_norm = None
        if self.use_cross_attention:
            self.cross_attention_norm = make_norm(
                norm,
                self.norm_epsilon,
                self.dtype_policy,
                "cross_attention_norm",
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
            self.cross_attention,
            self.cross_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
            self.dropout_layer,
        ):
            if sublayer is not None:
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
        scores = []

        def kept(outputs: Any) -> Any:
            if not return_attention_scores:
                return outputs
            outputs, weights = outputs
            scores.append(weights)
            return outputs

        def attention(x: Any) -> Any:
            return kept(
                self.attention.attend(
                    x,
                    context,
                    return_attention_scores=return_attention_scores,
                    training=training,
                )
            )

        def cross_attention(x: Any) -> Any:
            assert self.cross_attention is not None
            return kept(
                self.cross_attention.attend(
                    x,
                    context,
                    return_attention_scores=return_attention_scores,
                    training=training,
                )
            )

        x = self._add_parts(x, attention, cross_attention, training)
        return (x, *scores) if return_attention_scores else x

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

        x = self._add_parts(x, attention, cross_attention, False)
        return x, cache

    def _add_parts(
        self,
        x: Any,
        attention: Callable[[Any], Any],
        cross_attention: Callable[[Any], Any],
        training: bool | None,
    ) -> Any:
        def drop(x: Any) -> Any:
            return self.dropout_layer(x, training=training)

        def feed_forward(x: Any) -> Any:
            return self.feed_forward(x, training=training)

        parts: list[tuple[Callable[[Any], Any], Any]]
        parts = [(lambda x: drop(attention(x)), self.attention_norm)]
        if self.cross_attention is not None:
            parts.append(
                (lambda x: drop(cross_attention(x)), self.cross_attention_norm)
            )
        parts.append((feed_forward, self.feed_forward_norm))
        for part, norm in parts:
            x = x + part(norm(x)) if self.normalize_first else norm(x + part(x))
        return x

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "use_cross_attention": self.use_cross_attention,
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
            "cross_attention_position": keras.saving.serialize_keras_object(
                self.cross_attention_position
            ),
            "memory_dim": self.memory_dim,
            **projection_config(self),
        }
