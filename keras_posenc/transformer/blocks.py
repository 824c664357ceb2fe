"""The blocks of encoder and decoder."""

from collections.abc import Callable
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_inputs,
    check_mask,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.masks import hide_padding
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    DecodingLayer,
    QuantizedWithin,
)
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._options import (
    BlockOptions,
    FeedForwardOptions,
    ProjectionOptions,
    for_keras,
    for_sublayer,
    keep_options,
    select,
    with_options,
)
from keras_posenc.transformer._sublayers import (
    make_dense,
    make_norm,
    normalized,
    project,
)
from keras_posenc.transformer.attention import CrossAttention, SelfAttention
from keras_posenc.transformer.specs import (
    Attention,
    across_like,
    check_across,
    check_attention,
    is_same,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(FeedForwardOptions, dropout=0.0)
class FeedForward(ConfiguredLayer, QuantizedWithin, keras.Layer):
    """Two projections with an activation between them, token by token.

    Args:
        intermediate_dim: Width between the two projections.
        **options: As for `FeedForwardOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        training: Whether dropout is active.
        mask: Bool `(batch, seq)`, True for a token; by default the mask that
            the inputs carry. Padding is replaced by zeros, so that it does
            not reach the gradients of the weights.

    Returns:
        `(batch, seq, dim)` in the compute dtype.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> feed_forward = kp.FeedForward(64, activation="gelu")
    >>> tuple(feed_forward(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Shazeer, 2020](https://arxiv.org/abs/2002.05202) (gates)
    """

    def __init__(
        self,
        intermediate_dim: int,
        **options: Unpack[FeedForwardOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, locals())
        keep_options(self, FeedForwardOptions, options)
        self.gate = None
        if self.use_gate:
            self.gate = make_dense(
                self, self.intermediate_dim, "gate", self.activation
            )
        self.intermediate = make_dense(
            self,
            self.intermediate_dim,
            "intermediate",
            None if self.use_gate else self.activation,
        )
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        *outer, dim = input_shape
        self.intermediate.build((*outer, dim))
        if self.gate is not None:
            self.gate.build((*outer, dim))
        # Created here, as the width is known now.
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((*outer, self.intermediate_dim))
        self.dropout_layer.build((*outer, dim))

    def call(
        self, inputs: Any, *, training: bool | None = None, mask: Any = None
    ) -> Any:
        self._check_call(inputs, mask)
        if mask is not None:
            inputs = hide_padding(inputs, ops.cast(mask, "bool"))
        outer = outer_sizes(inputs)
        x = project(self.intermediate, inputs, (-1,))
        if self.gate is not None:
            x = x * project(self.gate, inputs, (-1,))
        outputs = project(self.output_projection, x, outer)
        return self.dropout_layer(outputs, training=training)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        self._check_call(inputs, mask)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def _check_call(self, inputs: Any, mask: Any) -> None:
        check_inputs(self, inputs)
        batch, seq, _ = inputs.shape
        sizes = {"batch": batch, "seq": seq}
        check_shape("mask", mask, ("batch", "seq"), sizes=sizes)
        check_mask("mask", mask)


_PARTS = ("attention", "cross_attention", "feed_forward")


class Block(AttentionLayer):
    """Base of the blocks: sublayers, each with a residual and a norm.

    Args:
        num_heads: Number of heads.
        attention: That of the self-attention.
        cross_attention: That of the cross-attention, or `"same"`; None for a
            block without one.
        memory_dim: As `CrossAttention` takes it.
        **options: All of `BlockOptions`.
    """

    hidden_arguments = AttentionLayer.hidden_arguments | {
        "cross_attention",  # arguments of the decoder's constructor
        "memory_dim",
    }

    def __init__(
        self,
        num_heads: int,
        *,
        attention: Any,
        cross_attention: Any = None,
        memory_dim: int | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        kept = keep_options(self, BlockOptions, options)

        def make(
            kind: Any, name: str, takes: Any, *args: Any, **own: Any
        ) -> Any:
            return kind(
                *args,
                **own,
                **for_sublayer(select(takes, kept), name),
                dtype=self.dtype_policy,
                name=name,
            )

        def make_attention(kind: Any, name: str, value: Any, **own: Any) -> Any:
            own |= {"attention": value, "norm_epsilon": self.norm.epsilon}
            return make(kind, name, ProjectionOptions, num_heads, **own)

        dtype = self.dtype_policy
        spec = check_attention("attention", attention, dtype)
        self.attention = make_attention(SelfAttention, "attention", spec)
        self.cross_attention = None
        if cross_attention is not None:
            name = "cross_attention"
            if is_same(cross_attention):
                cross_attention = across_like(spec)
            across = check_across(name, cross_attention, dtype)
            self.cross_attention = make_attention(
                CrossAttention, name, across, memory_dim=memory_dim
            )
        self.feed_forward = make(
            FeedForward,
            "feed_forward",
            FeedForwardOptions,
            self.intermediate_dim,
        )
        self.num_heads = self.attention.num_heads
        at = self.norm.at
        for part in _PARTS:
            is_first = at == "between" and part == "attention"
            for kind, is_there in (
                ("norm", at != "output" and not is_first),
                ("output_norm", "output" in at),
            ):
                norm, name = None, f"{part}_{kind}"
                if is_there and getattr(self, part) is not None:
                    norm = make_norm(self.norm, dtype, name)
                setattr(self, name, norm)
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=dtype, name="dropout"
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # The attributes are the layers that were made of the specs.
        for name in ("attention", "cross_attention"):
            layer = getattr(self, name)
            if name in config and layer is not None:
                spec = layer.attention
                config[name] = keras.saving.serialize_keras_object(spec)
        return config

    def positions_within(self) -> list[Any]:
        return list(self.attention.positions_within())

    def positions_across(self) -> list[Any]:
        across = self.cross_attention
        return [] if across is None else across.positions_across()

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for sublayer in (
            *(each for part in self._parts() for each in part),
            self.dropout_layer,
        ):
            if sublayer is not None:
                sublayer.build(tuple(input_shape))

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        scores = []

        def weighed(attention: Any, x: Any) -> Any:
            outputs = attention.attend(
                x,
                context,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if return_attention_scores:
                outputs, weights = outputs
                scores.append(weights)
            return outputs

        x = self.add_parts(x, weighed, training)
        return (x, *scores) if return_attention_scores else x

    def add_parts(
        self, x: Any, attend: Callable[[Any, Any], Any], training: bool | None
    ) -> Any:
        """Applies the sublayers, each with norm, dropout and residual.

        `attend` takes one of the block's attentions, and its inputs.
        """
        is_after = "after" in self.norm.at
        for part, norm, output_norm in self._parts():
            outputs = x if is_after else normalized(norm, x)
            if part is self.feed_forward:  # has its own dropout
                outputs = part(outputs, training=training)
            else:
                outputs = attend(part, outputs)
                outputs = self.dropout_layer(outputs, training=training)
            x = x + normalized(output_norm, outputs)
            if is_after:
                x = normalized(norm, x)
        return x

    def _parts(self) -> list[tuple[Any, Any, Any]]:
        """Lists the sublayers, each with the norms around it."""
        return [
            (
                getattr(self, part),
                getattr(self, f"{part}_norm"),
                getattr(self, f"{part}_output_norm"),
            )
            for part in _PARTS
            if getattr(self, part) is not None
        ]


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerEncoderBlock(Block):
    """Self-attention and feed-forward, each with a residual and a norm.

    Post-norm, as in the paper: `x = norm(x + attention(x))`. Pre-norm
    (`norm="before"`), which trains more steadily when deep:
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: An `Attention`, or a position alone, such as `"rotary"`.
        **options: As for `BlockOptions`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerEncoderBlock(num_heads=4, intermediate_dim=32)
    >>> tuple(block(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) (post-norm)
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(num_heads, attention=attention, **options)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerDecoderBlock(Block, DecodingLayer):
    """Causal self-attention, cross-attention and feed-forward.

    Each with a residual and a norm. Post-norm, as in the paper:
    `x = norm(x + attention(x))`; pre-norm (`norm="before"`):
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: The self-attention: an `Attention`, or a position alone,
            such as `"rotary"`.
        cross_attention: The attention to a memory, as `CrossAttention` takes
            it; `"same"` for that of `attention` without position and window;
            or None for the block of a decoder-only model, which is called
            without `memory`.
        memory_dim: Width of the memory; by default that of the inputs.
        **options: As for `BlockOptions`.

    Call arguments: those of `SelfAttention`, where `use_causal_mask` is True
    by default, and:
        memory: Float tensor of shape `(batch, source, memory_dim)`.
        memory_positions: Where its tokens stand, as in `CrossAttention`.
        memory_segment_ids: Integers `(batch, source)`, as in `CrossAttention`.
        memory_mask: Bool `(batch, source)`, True for a token; by default the
            mask that the memory carries.
        memory_attention_mask: Bool `(batch, seq, source)`: which token may
            attend to which token of the memory.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` also the weights of the self-attention,
        `(batch, num_heads, seq, seq)`, and of the cross-attention,
        `(batch, num_heads, seq, source)`, where there is one.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerDecoderBlock(num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(block(target, memory=memory).shape)
    (2, 5, 16)
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        cross_attention: Attention | AttentionPosition | str | None = "same",
        memory_dim: int | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        if memory_dim is not None and cross_attention is None:
            raise ValueError(
                "`memory_dim` needs a `cross_attention`. "
                f"Received: memory_dim={memory_dim!r}, cross_attention=None"
            )
        super().__init__(
            num_heads,
            attention=attention,
            cross_attention=cross_attention,
            memory_dim=memory_dim,
            **options,
        )
        self.memory_dim = memory_dim

    def attend_cached(
        self,
        x: Any,
        context: Context,
        cache: dict[str, Any],
        remembered: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Computes the outputs of further tokens, and extends the cache.

        As `attend_cached` of a stack; `remembered` is None without a memory.
        """

        def attend(attention: Any, x: Any) -> Any:
            nonlocal cache
            if attention is self.attention:
                outputs, cache = attention.attend_cached(x, context, cache)
                return outputs
            return attention.read(
                x,
                context.memory,
                remembered,
                return_attention_scores=False,
                training=False,
            )

        x = self.add_parts(x, attend, False)
        return x, cache
