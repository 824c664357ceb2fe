"""A stack of encoder blocks."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_posenc.ops.arguments import check_bool
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import check_windows
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._stack import Stack
from keras_posenc.transformer.transformer_encoder_block import (
    TransformerEncoderBlock,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerEncoder(Stack):
    """A stack of `TransformerEncoderBlock`s, as wide as its inputs.

    The defaults are the paper's. With `normalize_first=True` a final norm
    stands behind the last block.

    Args:
        num_layers: Number of blocks.
        num_heads: Number of heads; divides the width of the inputs.
        intermediate_dim: Width of the feed-forward parts.
        dropout: Rate of the dropouts in every block, in [0, 1).
        activation: Activation of the feed-forward parts.
        normalize_first: Pre-norm (True) or post-norm (False, the paper).
        norm_epsilon: Added to the variance, above 0.
        norm: `"layer"` or `"rms"`.
        use_bias: Whether the projections have biases.
        use_gate: Whether the feed-forward parts have a gate, as `FeedForward`
            says.
        num_key_value_heads: Heads of keys and values; `num_heads` by default.
        attention_position: An `AttentionPosition` that all blocks share, or
            the name of a kind, such as `"rotary"`, `"alibi"` or `"t5"`; a list
            with one (or None) for each block; or None.
        attention_window: How many tokens a token sees on either side of
            itself, or None for all: one value, or a list with one for each
            block.
        use_first_norm: Whether the first block has the norm of its attention
            half. ModernBERT's has none, for its embeddings are normalised.
        share_blocks: Whether all blocks are one and the same, as in ALBERT.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        bias_regularizer: Regularizer of their biases.
        skip_padding: Whether the blocks leave the padding of masked inputs
            out, so that a batch costs what its tokens cost. The answers are
            the same. TensorFlow only: elsewhere, in a LiteRT or ONNX file,
            where XLA compiles (`jit_compile=True`) and where an
            `attention_mask` is given or attention scores are returned,
            padding is computed, and not used.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` a pair of it and a list with the weights of
        each block, `(batch, num_heads, seq, seq)`.

    Raises:
        ValueError: An argument that is none of the above.

    Example:
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ...     kp.TransformerEncoder(num_layers=2, num_heads=4),
    ...     kp.MaskedAveragePooling1D(),
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
        num_heads: int = 8,
        intermediate_dim: int = 2048,
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
        attention_window: int | Sequence[int | None] | None = None,
        use_first_norm: bool = True,
        share_blocks: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        skip_padding: bool = True,
        **kwargs: Any,
    ) -> None:
        windows = check_windows(attention_window, num_layers)
        norms = [True] * len(windows)
        norms[0] = check_bool("use_first_norm", use_first_norm)
        alike = all(
            not isinstance(value, list | tuple)
            for value in (attention_position, attention_window)
        )
        if not norms[0] and not normalize_first:
            raise ValueError(
                "use_first_norm=False needs normalize_first=True: behind "
                "attention there is a norm in each block. "
                f"Received: normalize_first={normalize_first!r}"
            )
        if check_bool("share_blocks", share_blocks) and not (
            alike and norms[0]
        ):
            raise ValueError(
                "`share_blocks` needs blocks that are alike: one "
                "`attention_position`, one `attention_window` and "
                "use_first_norm=True. Received: "
                f"attention_position={attention_position!r}, "
                f"attention_window={attention_window!r}, "
                f"use_first_norm={use_first_norm}"
            )
        super().__init__(
            TransformerEncoderBlock,
            num_layers,
            by_block={"attention_window": windows, "use_attention_norm": norms},
            share_blocks=share_blocks,
            block_positions={"attention_position": attention_position},
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
        self.attention_window = (
            windows
            if isinstance(attention_window, list | tuple)
            else windows[0]
        )
        self.use_first_norm = use_first_norm
        self.share_blocks = share_blocks

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
        scores = []
        for block in self.blocks:
            x = block(
                x,
                return_attention_scores=return_attention_scores,
                training=training,
                context=context,
            )
            if return_attention_scores:
                x, weights = x
                scores.append(weights)
        if self.final_norm is not None:
            x = self.final_norm(x)
        x = context.hide_padding(context.unpack(x))
        return (x, scores) if return_attention_scores else x

    def get_config(self) -> dict[str, Any]:
        config = {
            **super().get_config(),
            "attention_window": self.attention_window,
            "use_first_norm": self.use_first_norm,
            "share_blocks": self.share_blocks,
        }
        del config["use_attention_norm"]  # of a block
        return config
