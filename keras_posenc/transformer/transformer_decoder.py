"""A stack of decoder blocks."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.ops.masks import hide_padding
from keras_posenc.transformer._attention_layer import check_windows, side_of
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._decoding_layer import DecodingLayer
from keras_posenc.transformer._options import (
    AttentionPositions,
    StackOptions,
    with_options,
)
from keras_posenc.transformer._stack import Stack
from keras_posenc.transformer.transformer_decoder_block import (
    TransformerDecoderBlock,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerDecoder(Stack, DecodingLayer):
    """A stack of `TransformerDecoderBlock`s, as wide as its inputs.

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        use_cross_attention: Whether the blocks attend to a memory. If not, it
            is the stack of a decoder-only model, called without `memory`.
        attention_window: How many tokens a token sees before itself, besides
            itself, or None for all: one value, or a list with one for each
            block.
        cross_attention_position: Position in the cross-attentions, each as
            `CrossAttention` takes it: one for all blocks, or a list.
        memory_dim: Width of the memory; by default that of the inputs.
        skip_padding: Whether the blocks leave padding out of their computation,
            as `TransformerEncoder` says.
        **options: As for `StackOptions`.

    Call arguments: those of `TransformerDecoderBlock`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` also a list with the weights of each
        self-attention, and one with those of each cross-attention, if any.

    Raises:
        ValueError: An invalid argument.

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
        use_cross_attention: bool = True,
        attention_window: int | Sequence[int | None] | None = None,
        cross_attention_position: AttentionPositions = None,
        memory_dim: int | None = None,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        windows = check_windows(attention_window, num_layers)
        super().__init__(
            TransformerDecoderBlock,
            num_layers,
            skip_padding=skip_padding,
            positions={"cross_attention_position": cross_attention_position},
            of_blocks={
                "use_cross_attention": use_cross_attention,
                "memory_dim": memory_dim,
            },
            by_block={"attention_window": windows},
            **options,
        )
        self.attention_window = (
            windows
            if isinstance(attention_window, list | tuple)
            else windows[0]
        )
        self.use_cross_attention = use_cross_attention
        self.memory_dim = memory_dim

    def attend_cached(
        self,
        x: Any,
        context: Context,
        caches: list[dict[str, Any]],
        remembered: list[dict[str, Any]],
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Computes the outputs of further tokens, and extend the caches.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            caches: That of each block, as `empty_caches` makes it.
            remembered: What `remember` returned; empty without a memory.
        """
        x = context.hide_padding(x)
        new = []
        for index, block in enumerate(self.blocks):
            of_memory = remembered[index] if remembered else None
            x, cache = block.attend_cached(x, context, caches[index], of_memory)
            new.append(cache)
        return self.finish(x, context), new

    def empty_caches(self, batch: Any, length: Any) -> list[dict[str, Any]]:
        """Makes buffers for the keys and values of each block, all zeros."""
        return [
            block.attention.empty_cache(batch, length) for block in self.blocks
        ]

    def remember(self, memory: Any, tokens: Any) -> list[dict[str, Any]]:
        """Computes the keys and values of a memory for each block.

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
