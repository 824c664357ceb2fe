"""The base of the blocks of encoder and decoder."""

from collections.abc import Callable
from typing import Any, Unpack

import keras

from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import AttentionLayer
from keras_posenc.transformer._bfloat16 import warn_of_slow_bfloat16
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._options import (
    AttentionOptions,
    BlockOptions,
    FeedForwardOptions,
    for_keras,
    for_sublayer,
    keep_options,
    select,
)
from keras_posenc.transformer._sublayers import make_norm, normalized
from keras_posenc.transformer.cross_attention import CrossAttention
from keras_posenc.transformer.feed_forward import FeedForward
from keras_posenc.transformer.self_attention import SelfAttention


class Block(AttentionLayer):
    """Base of the blocks: sublayers, each with a residual and a norm.

    Args:
        num_heads: Number of heads.
        attention_position: Position in the self-attention.
        attention_window: Window of the self-attention.
        across: Options of the cross-attention; None for a block without one.
        **options: All of `BlockOptions`.
    """

    hidden_arguments = AttentionLayer.hidden_arguments | {
        "attention_window",  # an argument of the encoder's constructor
        "across",
    }

    def __init__(
        self,
        num_heads: int,
        *,
        attention_position: AttentionPosition | str | None,
        attention_window: int | None = None,
        across: dict[str, Any] | None = None,
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

        self.attention = make(
            SelfAttention,
            "attention",
            AttentionOptions,
            num_heads,
            attention_position=attention_position,
            attention_window=attention_window,
        )
        self.cross_attention = None
        if across is not None:
            self.cross_attention = make(
                CrossAttention,
                "cross_attention",
                AttentionOptions,
                num_heads,
                **across,
            )
        self.feed_forward = make(
            FeedForward,
            "feed_forward",
            FeedForwardOptions,
            self.intermediate_dim,
        )
        self.num_heads = self.attention.num_heads
        self.num_key_value_heads = self.attention.num_key_value_heads
        self.attention_position = self.attention.attention_position

        is_between = self.norm_at == "between"
        for part in ("attention", "cross_attention", "feed_forward"):
            for kind, is_there in (
                (
                    "norm",
                    self.norm_at != "output"
                    and not (is_between and part == "attention"),
                ),
                ("output_norm", "output" in self.norm_at),
            ):
                norm, name = None, f"{part}_{kind}"
                if is_there and getattr(self, part) is not None:
                    norm = make_norm(
                        self.norm, self.norm_epsilon, self.dtype_policy, name
                    )
                setattr(self, name, norm)
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        if self.compute_dtype == "bfloat16":
            warn_of_slow_bfloat16()
        for sublayer in (
            self.attention,
            self.attention_norm,
            self.attention_output_norm,
            self.cross_attention,
            self.cross_attention_norm,
            self.cross_attention_output_norm,
            self.feed_forward,
            self.feed_forward_norm,
            self.feed_forward_output_norm,
            self.dropout_layer,
        ):
            if sublayer is not None:
                sublayer.build(tuple(input_shape))
        self.built = True

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        scores = []

        def weighed(attention: Any) -> Callable[[Any], Any]:
            def attended(x: Any) -> Any:
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

            return attended

        x = self.add_parts(
            x, weighed(self.attention), weighed(self.cross_attention), training
        )
        return (x, *scores) if return_attention_scores else x

    def add_parts(
        self,
        x: Any,
        attention: Callable[[Any], Any],
        cross_attention: Callable[[Any], Any],
        training: bool | None,
    ) -> Any:
        """Applies the sublayers, each with norm, dropout and residual."""
        is_after = "after" in self.norm_at
        for part, norm, output_norm in (
            (attention, self.attention_norm, self.attention_output_norm),
            (
                cross_attention,
                self.cross_attention_norm,
                self.cross_attention_output_norm,
            ),
            (
                self.feed_forward,
                self.feed_forward_norm,
                self.feed_forward_output_norm,
            ),
        ):
            if part is cross_attention and self.cross_attention is None:
                continue
            outputs = x if is_after else normalized(norm, x)
            if part is self.feed_forward:  # has its own dropout
                outputs = part(outputs, training=training)
            else:
                outputs = self.dropout_layer(part(outputs), training=training)
            x = x + normalized(output_norm, outputs)
            if is_after:
                x = normalized(norm, x)
        return x
