"""One block of the decoder: attention, cross-attention, feed-forward."""

from typing import Any, Unpack

import keras

from keras_posenc.checks import check_bool
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._block import Block
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._decoding_layer import (
    DecodingLayer,
    check_cross_attention_position,
)
from keras_posenc.transformer._options import BlockOptions, with_options


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerDecoderBlock(Block, DecodingLayer):
    """Causal self-attention, cross-attention and feed-forward.

    Each with a residual and a norm. Post-norm, as in the paper:
    `x = norm(x + attention(x))`; pre-norm (`norm_at="before"`):
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            `head_dim` is given.
        use_cross_attention: Whether the block attends to a memory. If not, it
            is that of a decoder-only model, and is called without `memory`.
        attention_position: An `AttentionPosition` of the self-attention, the
            name of a kind, such as `"rotary"`, or None.
        attention_window: How many tokens a token sees before itself, besides
            itself; None for all.
        cross_attention_position: That of the cross-attention, as
            `CrossAttention` takes it, or None.
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

    Raises:
        ValueError: An invalid argument.

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
        use_cross_attention: bool = True,
        attention_position: AttentionPosition | str | None = None,
        attention_window: int | None = None,
        cross_attention_position: AttentionPosition | str | None = None,
        memory_dim: int | None = None,
        **options: Unpack[BlockOptions],
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
                    options["dtype"],
                    "cross_attention_position",
                ),
                "memory_dim": memory_dim,
            }
        super().__init__(
            num_heads,
            attention_position=attention_position,
            attention_window=attention_window,
            across=across,
            **options,
        )
        self.attention_window = self.attention.attention_window
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
        """Computes the outputs of further tokens, and extend the cache.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            cache: That of the self-attention.
            remembered: The keys and values of the memory, if there is one.
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
