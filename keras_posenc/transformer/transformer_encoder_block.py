"""One block of the encoder: attention, then feed-forward."""

from typing import Unpack

import keras

from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._block import Block
from keras_posenc.transformer._options import BlockOptions, with_options


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerEncoderBlock(Block):
    """Self-attention and feed-forward, each with a residual and a norm.

    Post-norm, as in the paper: `x = norm(x + attention(x))`. Pre-norm
    (`norm_at="before"`), which trains more steadily when deep:
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            `head_dim` is given.
        attention_position: An `AttentionPosition`, the name of a kind, such as
            `"rotary"`, `"alibi"` or `"t5"`, or None.
        attention_window: How many tokens a token sees on either side of
            itself; None for all.
        **options: As for `BlockOptions`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerEncoderBlock(num_heads=4, intermediate_dim=32)
    >>> tuple(block(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) (post-norm)
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
        - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467) (RMS)
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        attention_position: AttentionPosition | str | None = None,
        attention_window: int | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(
            num_heads,
            attention_position=attention_position,
            attention_window=attention_window,
            **options,
        )
        self.attention_window = self.attention.attention_window
