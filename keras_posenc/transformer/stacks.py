"""Stacks of encoder and decoder blocks."""

from dataclasses import replace
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_bool
from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.ops.masks import hide_padding
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    DecodingLayer,
    side_of,
)
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._options import (
    BlockOptions,
    StackOptions,
    for_keras,
    for_sublayer,
    keep_options,
    with_options,
)
from keras_posenc.transformer._sublayers import make_norm
from keras_posenc.transformer.blocks import (
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from keras_posenc.transformer.specs import (
    Attentions,
    across_like,
    by_block,
    check_across,
    check_attention,
    check_norm,
    is_same,
)


class Stack(AttentionLayer):
    """Base of the stacks: blocks and, unless these are post-norm, a norm.

    Args:
        block: The class of the blocks.
        num_layers: Number of blocks.
        cross_attention: As `TransformerDecoder` takes it.
        skip_padding: Whether the blocks leave padding out of their computation.
        of_blocks: Further arguments of all blocks.
        share_blocks: Whether all blocks are the same layer.
        **options: All of `StackOptions`.
    """

    recomputed_in_parts = True
    hidden_arguments = AttentionLayer.hidden_arguments | {
        "block",
        "cross_attention",  # an argument of the decoder's constructor
        "of_blocks",
        "share_blocks",  # an argument of the encoder's constructor
    }

    def __init__(
        self,
        block: Any,
        num_layers: int,
        *,
        skip_padding: bool,
        cross_attention: Any = None,
        of_blocks: dict[str, Any] | None = None,
        share_blocks: bool = False,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        self.skip_padding = check_bool("skip_padding", skip_padding)
        dtype = self.dtype_policy
        each: dict[str, list[Any]] = {}
        self.attention, each["attention"] = by_block(
            "attention",
            options["attention"],
            num_layers,
            check_attention,
            dtype,
        )
        self.num_layers = count = len(each["attention"])
        if is_same(cross_attention):
            cross_attention = across_like(self.attention)
        if (
            isinstance(cross_attention, list | tuple)
            and None in cross_attention
        ):
            raise ValueError(
                "`cross_attention` as a list must have an attention for each "
                "block, Attention() where it has no position. "
                f"Received: cross_attention={cross_attention!r}"
            )
        if isinstance(self, DecodingLayer):
            each["cross_attention"] = [None] * count
            self.cross_attention = None
        if cross_attention is not None:
            self.cross_attention, each["cross_attention"] = by_block(
                "cross_attention", cross_attention, count, check_across, dtype
            )
        of_blocks = {
            **keep_options(self, BlockOptions, options),
            **(of_blocks or {}),
        }
        norm = of_blocks.pop("norm")
        others = replace(norm, at="before") if norm.at == "between" else norm
        each["norm"] = [norm, *[others] * (count - 1)]
        # A shared block is built, saved and quantized once.
        made = [
            block(
                options["num_heads"],
                **{name: values[i] for name, values in each.items()},
                **for_sublayer(of_blocks, f"block_{i}"),
                dtype=dtype,
                name=f"block_{i}",
            )
            for i in range(1 if share_blocks else count)
        ]
        self.blocks = made * count if share_blocks else made
        self.num_heads = self.blocks[0].num_heads
        self.final_norm = None
        if "after" not in self.norm.at:
            self.final_norm = make_norm(self.norm, dtype, "final_norm")

    def positions_within(self) -> list[Any]:
        return [x for block in self.blocks for x in block.positions_within()]

    def positions_across(self) -> list[Any]:
        return [x for block in self.blocks for x in block.positions_across()]

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for block in self.blocks:
            if not block.built:  # by the block before, if shared
                block.build(tuple(input_shape))
        if self.final_norm is not None:
            self.final_norm.build(tuple(input_shape))

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
        x = self.finish(x, context)
        # (block, kind of attention) -> (kind of attention, block)
        by_kind = (list(weights) for weights in zip(*scores, strict=True))
        return (x, *by_kind) if return_attention_scores else x

    def finish(self, x: Any, context: Context) -> Any:
        """Applies the final norm, and unpacks the tokens: (batch, seq, dim)."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        return context.hide_padding(context.unpack(x))


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerEncoder(Stack):
    """A stack of `TransformerEncoderBlock`s, as wide as its inputs.

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        share_blocks: Whether all blocks are one, as in ALBERT.
        skip_padding: Whether the blocks skip the padding of masked inputs, so
            that the time of a batch depends on its real tokens. The outputs do
            not change. Only on TensorFlow: padding is computed, and not used,
            on other backends, in a LiteRT or ONNX file, where XLA compiles
            (`jit_compile=True`), and in a call with an `attention_mask` or
            `return_attention_scores`.
        **options: As for `StackOptions`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` a pair of it and a list with the weights of
        each block, `(batch, num_heads, seq, seq)`.

    Example:
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ...     kp.TransformerEncoder(num_layers=2, num_heads=4),
    ...     kp.Pooling1D("mean"),
    ... ])
    >>> model.output_shape
    (None, 64)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Lan et al., 2019](https://arxiv.org/abs/1909.11942) (shared blocks)
        - [Warner et al., 2024](https://arxiv.org/abs/2412.13663) (windows in
          some blocks)
    """

    def __init__(
        self,
        num_layers: int = 6,
        *,
        share_blocks: bool = False,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        attention = options["attention"]
        norm = check_norm("norm", options["norm"])
        alike = norm.at != "between" and not isinstance(attention, list | tuple)
        if check_bool("share_blocks", share_blocks) and not alike:
            raise ValueError(
                "`share_blocks` needs blocks that are alike: one `attention`, "
                "and a `norm` that is not 'between'. Received: "
                f"attention={attention!r}, norm={norm!r}"
            )
        super().__init__(
            TransformerEncoderBlock,
            num_layers,
            share_blocks=share_blocks,
            skip_padding=skip_padding,
            **options,
        )
        self.share_blocks = share_blocks


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerDecoder(Stack, DecodingLayer):
    """A stack of `TransformerDecoderBlock`s, as wide as its inputs.

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        cross_attention: The attentions to a memory, as `CrossAttention` takes
            them: one for all blocks, or a list; `"same"` for that of
            `attention` without position and window; or None for the stack of
            a decoder-only model, which is called without `memory`.
        memory_dim: Width of the memory; by default that of the inputs.
        skip_padding: Whether the blocks leave padding out of their computation,
            as `TransformerEncoder` says.
        **options: As for `StackOptions`.

    Call arguments: those of `TransformerDecoderBlock`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` also a list with the weights of each
        self-attention, and one with those of each cross-attention, if any.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> decoder = kp.TransformerDecoder(2, num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(decoder(target, memory=memory).shape)
    (2, 5, 16)
    """

    def __init__(
        self,
        num_layers: int = 6,
        *,
        cross_attention: Attentions = "same",
        memory_dim: int | None = None,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__(
            TransformerDecoderBlock,
            num_layers,
            cross_attention=cross_attention,
            skip_padding=skip_padding,
            of_blocks={"memory_dim": memory_dim},
            **options,
        )
        self.memory_dim = memory_dim

    def attend_cached(
        self,
        x: Any,
        context: Context,
        caches: list[dict[str, Any]],
        remembered: list[dict[str, Any]],
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Computes the outputs of further tokens, and extends the caches.

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

        Its `tokens`, bool `(batch, source)`, are those that are real.
        """
        memory = hide_padding(ops.cast(memory, self.compute_dtype), tokens)
        keys = side_of(
            self.positions_across(), ops.shape(memory)[1], masks=(tokens,)
        )
        return [
            block.cross_attention.remember(memory, keys)
            for block in self.blocks
            if block.cross_attention is not None
        ]
