"""What the stack of the encoder and that of the decoder have in common."""

from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive_int,
    check_sequence_shape,
)
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    check_positions,
)
from keras_posenc.transformer._sublayers import (
    make_norm,
    options_of,
    projection_config,
    projection_options,
)


class Stack(AttentionLayer):
    """Base of the stacks: blocks, and behind those of pre-norm a final norm.

    Args:
        block: The class of the blocks.
        num_layers: Their number.
        block_positions: Of each argument that may differ by block, what it
            was given: one value, or a list.
        num_heads: As the subclasses say, and all that follow.
        of_blocks: More that all blocks are made with.
        by_block: More that they are made with, a list of one for each.
        share_blocks: Whether one block stands for all of them.
        skip_padding: Whether they leave padding out of their computation.
    """

    recomputed_in_parts = True
    hidden_arguments = AttentionLayer.hidden_arguments | {
        "block",
        "block_positions",
        "of_blocks",
        "by_block",
        "share_blocks",  # which the encoder's constructor names itself
    }

    def __init__(
        self,
        block: Any,
        num_layers: int,
        *,
        block_positions: dict[str, Any],
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        activation: Any,
        normalize_first: bool,
        norm_epsilon: float,
        norm: str,
        use_bias: bool,
        use_gate: bool,
        num_key_value_heads: int | None,
        kernel_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        bias_regularizer: Any,
        of_blocks: dict[str, Any] | None = None,
        by_block: dict[str, list[Any]] | None = None,
        share_blocks: bool = False,
        skip_padding: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = count = check_positive_int("num_layers", num_layers)
        self.normalize_first = check_bool("normalize_first", normalize_first)
        self.skip_padding = check_bool("skip_padding", skip_padding)
        by_block = dict(by_block or {})
        for name, value in block_positions.items():
            value = check_positions(name, value, count, self.dtype_policy)
            setattr(self, name, value)
            by_block[name] = (
                value if isinstance(value, list) else [value] * count
            )
        options = projection_options(
            self,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )
        # One that is shared is built, kept and quantized once.
        made = [
            block(
                num_heads,
                intermediate_dim=intermediate_dim,
                dropout=dropout,
                activation=activation,
                normalize_first=normalize_first,
                norm_epsilon=norm_epsilon,
                norm=norm,
                use_bias=use_bias,
                use_gate=use_gate,
                num_key_value_heads=num_key_value_heads,
                **{name: values[i] for name, values in by_block.items()},
                **(of_blocks or {}),
                **options_of(options, f"block_{i}"),
                dtype=self.dtype_policy,
                name=f"block_{i}",
            )
            for i in range(1 if share_blocks else count)
        ]
        self.blocks = made * count if share_blocks else made
        first = self.blocks[0]
        self.num_heads = first.num_heads
        self.num_key_value_heads = first.num_key_value_heads
        self.intermediate_dim = first.intermediate_dim
        self.dropout = first.dropout
        self.activation = first.activation
        self.norm_epsilon = first.norm_epsilon
        self.norm = first.norm
        self.use_bias = first.use_bias
        self.use_gate = first.use_gate
        self.final_norm = None
        if self.normalize_first:
            self.final_norm = make_norm(
                norm, norm_epsilon, self.dtype_policy, "final_norm"
            )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for block in self.blocks:
            if not block.built:  # shared, or by the block before
                block.build(tuple(input_shape))
        if self.final_norm is not None:
            self.final_norm.build(tuple(input_shape))
        self.built = True

    def get_config(self) -> dict[str, Any]:
        return {
            **self.blocks[0].get_config(),
            **super().get_config(),
            "num_layers": self.num_layers,
            "skip_padding": self.skip_padding,
            "attention_position": keras.saving.serialize_keras_object(
                self.attention_position
            ),
            **projection_config(self),
        }
