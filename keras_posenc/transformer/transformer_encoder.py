"""A stack of encoder blocks."""

from collections.abc import Sequence
from typing import Unpack

import keras

from keras_posenc.checks import check_bool
from keras_posenc.transformer._attention_layer import check_windows
from keras_posenc.transformer._options import StackOptions, with_options
from keras_posenc.transformer._stack import Stack
from keras_posenc.transformer.transformer_encoder_block import (
    TransformerEncoderBlock,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerEncoder(Stack):
    """A stack of `TransformerEncoderBlock`s, as wide as its inputs.

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        attention_window: How many tokens a token sees on either side of
            itself, or None for all: one value, or a list with one for each
            block.
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

    Raises:
        ValueError: An invalid argument.

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
        attention_window: int | Sequence[int | None] | None = None,
        share_blocks: bool = False,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        windows = check_windows(attention_window, num_layers)
        alike = options["norm_at"] != "between" and not any(
            isinstance(value, list | tuple)
            for value in (options["attention_position"], attention_window)
        )
        if check_bool("share_blocks", share_blocks) and not alike:
            raise ValueError(
                "`share_blocks` needs blocks that are alike: one "
                "`attention_position`, one `attention_window` and a `norm_at` "
                "that is not 'between'. Received: "
                f"attention_position={options['attention_position']!r}, "
                f"attention_window={attention_window!r}, "
                f"norm_at={options['norm_at']!r}"
            )
        super().__init__(
            TransformerEncoderBlock,
            num_layers,
            by_block={"attention_window": windows},
            share_blocks=share_blocks,
            skip_padding=skip_padding,
            **options,
        )
        self.attention_window = (
            windows
            if isinstance(attention_window, list | tuple)
            else windows[0]
        )
        self.share_blocks = share_blocks
