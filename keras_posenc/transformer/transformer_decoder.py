"""A stack of decoder blocks."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.masks import hide_padding
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import side_of
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._decoding_layer import DecodingLayer
from keras_posenc.transformer._stack import Stack
from keras_posenc.transformer.transformer_decoder_block import (
    TransformerDecoderBlock,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerDecoder(Stack, DecodingLayer):
    """A stack of `TransformerDecoderBlock`s, as wide as its inputs.

    The defaults are the paper's. With `normalize_first=True` a final norm
    stands behind the last block.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of heads; divides the width of the inputs.
        intermediate_dim: Width of the feed-forward parts.
        use_cross_attention: Whether the blocks attend to a memory. If not, it
            is the stack of a decoder-only model, called without `memory`.
        dropout: Rate of the dropouts in every block, in [0, 1).
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False, the paper).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        attention_position: An `AttentionPosition` that all self-attentions
            share, or the name of a kind, such as `"rotary"`; a list with one
            (or None) for each block; or None.
        cross_attention_position: The same of the cross-attentions, each as
            `CrossAttention` takes it.
        memory_dim: Width of the memory; by default that of the inputs.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        skip_padding: That of `TransformerEncoder`.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `TransformerDecoderBlock`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` also a list with the weights of each
        self-attention, and one with those of each cross-attention, if any.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> decoder = kp.TransformerDecoder(2, num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(decoder(target, memory=memory).shape)
    (2, 5, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        num_layers: int = 6,
        *,
        num_heads: int = 8,
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
        attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        cross_attention_position: (
            AttentionPosition
            | str
            | Sequence[AttentionPosition | str | None]
            | None
        ) = None,
        memory_dim: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        skip_padding: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            TransformerDecoderBlock,
            num_layers,
            block_positions={
                "attention_position": attention_position,
                "cross_attention_position": cross_attention_position,
            },
            of_blocks={
                "use_cross_attention": use_cross_attention,
                "memory_dim": memory_dim,
            },
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
            dropout=dropout,
            activation=activation,
            normalize_first=normalize_first,
            norm_epsilon=norm_epsilon,
            norm=norm,
            use_bias=use_bias,
            use_gate=use_gate,
            num_key_value_heads=num_key_value_heads,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            skip_padding=skip_padding,
            **kwargs,
        )
        self.use_cross_attention = use_cross_attention
        self.memory_dim = memory_dim

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        if self.skip_padding and not return_attention_scores:
            context.skip_padding(x, training)
        x = context.pack(x)
        scores: list[Any] = []
        for block in self.blocks:
            x = block(
                x,
                return_attention_scores=return_attention_scores,
                training=training,
                context=context,
            )
            if return_attention_scores:
                x, *weights = x
                scores.append(weights)
        x = self._finish(x, context)
        # Of each block the weights of both -> of both, a list of the blocks'.
        by_kind = (list(weights) for weights in zip(*scores, strict=True))
        return (x, *by_kind) if return_attention_scores else x

    def attend_cached(
        self,
        x: Any,
        context: Context,
        caches: list[dict[str, Any]],
        remembered: list[dict[str, Any]],
    ) -> tuple[Any, list[dict[str, Any]]]:
        """What tokens get that go on after others, and the caches with them.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            caches: That of each block, as `empty_caches` makes it.
            remembered: What each block kept of the memory; empty without one.
        """
        x = context.hide_padding(x)
        new = []
        for index, block in enumerate(self.blocks):
            of_memory = remembered[index] if remembered else None
            x, cache = block.attend_cached(x, context, caches[index], of_memory)
            new.append(cache)
        return self._finish(x, context), new

    def empty_caches(self, batch: Any, length: Any) -> list[dict[str, Any]]:
        """Of each block, buffers for the keys and values of so many tokens."""
        return [
            block.attention.empty_cache(batch, length) for block in self.blocks
        ]

    def remember(self, memory: Any, tokens: Any) -> list[dict[str, Any]]:
        """Of each block, the keys and values of a memory.

        Args:
            memory: `(batch, source, memory_dim)`.
            tokens: Bool `(batch, source)`, which of them are real.
        """
        memory = hide_padding(ops.cast(memory, self.compute_dtype), tokens)
        keys = side_of(
            self.cross_attention_position,
            ops.shape(memory)[1],
            masks=(tokens,),
        )
        return [
            block.cross_attention.remember(memory, keys)
            for block in self.blocks
            if block.cross_attention is not None
        ]

    def _finish(self, x: Any, context: Context) -> Any:
        if self.final_norm is not None:
            x = self.final_norm(x)
        return context.hide_padding(context.unpack(x))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "cross_attention_position": keras.saving.serialize_keras_object(
                self.cross_attention_position
            ),
        }
