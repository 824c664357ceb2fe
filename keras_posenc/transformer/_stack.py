"""The base of the stacks of encoder and decoder."""

from typing import Any, Unpack

from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    check_positions,
)
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._options import (
    BlockOptions,
    StackOptions,
    for_keras,
    for_sublayer,
    keep_options,
)
from keras_posenc.transformer._sublayers import make_norm


class Stack(AttentionLayer):
    """Base of the stacks: blocks and, unless these are post-norm, a norm.

    Args:
        block: The class of the blocks.
        num_layers: Number of blocks.
        skip_padding: Whether the blocks leave padding out of their computation.
        positions: Further arguments, by name, of one `AttentionPosition` or a
            list of one for each block.
        of_blocks: Further arguments of all blocks.
        by_block: Further arguments, each a list with a value for each block.
        share_blocks: Whether all blocks are the same layer.
        **options: All of `StackOptions`.
    """

    recomputed_in_parts = True
    hidden_arguments = AttentionLayer.hidden_arguments | {
        "block",
        "positions",
        "of_blocks",
        "by_block",
        "share_blocks",  # an argument of the encoder's constructor
    }

    def __init__(
        self,
        block: Any,
        num_layers: int,
        *,
        skip_padding: bool,
        positions: dict[str, Any] | None = None,
        of_blocks: dict[str, Any] | None = None,
        by_block: dict[str, list[Any]] | None = None,
        share_blocks: bool = False,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        self.num_layers = count = check_positive_int("num_layers", num_layers)
        self.skip_padding = check_bool("skip_padding", skip_padding)
        by_block = dict(by_block or {})
        positions = {
            "attention_position": options["attention_position"],
            **(positions or {}),
        }
        for name, value in positions.items():
            value = check_positions(name, value, count, self.dtype_policy)
            setattr(self, name, value)
            by_block[name] = (
                value if isinstance(value, list) else [value] * count
            )
        of_blocks = {
            **keep_options(self, BlockOptions, options),
            **(of_blocks or {}),
        }
        place = of_blocks.pop("norm_at")
        others = "before" if place == "between" else place
        by_block["norm_at"] = [place, *[others] * (count - 1)]
        # A shared block is built, saved and quantized once.
        made = [
            block(
                options["num_heads"],
                **{name: values[i] for name, values in by_block.items()},
                **for_sublayer(of_blocks, f"block_{i}"),
                dtype=self.dtype_policy,
                name=f"block_{i}",
            )
            for i in range(1 if share_blocks else count)
        ]
        self.blocks = made * count if share_blocks else made
        self.num_heads = self.blocks[0].num_heads
        self.num_key_value_heads = self.blocks[0].num_key_value_heads
        self.final_norm = None
        if "after" not in self.norm_at:
            self.final_norm = make_norm(
                self.norm, self.norm_epsilon, self.dtype_policy, "final_norm"
            )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for block in self.blocks:
            if not block.built:  # by the block before, if shared
                block.build(tuple(input_shape))
        if self.final_norm is not None:
            self.final_norm.build(tuple(input_shape))
        self.built = True

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
        """Applies the final norm, and unpack the tokens: (batch, seq, dim)."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        return context.hide_padding(context.unpack(x))
