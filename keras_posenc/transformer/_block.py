"""What a block of the encoder and one of the decoder have in common."""

from collections.abc import Callable
from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive,
    check_sequence_shape,
)
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import AttentionLayer
from keras_posenc.transformer._bfloat16 import warn_of_slow_bfloat16
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._sublayers import (
    make_norm,
    options_of,
    projection_config,
    projection_options,
)
from keras_posenc.transformer.cross_attention import CrossAttention
from keras_posenc.transformer.feed_forward import FeedForward
from keras_posenc.transformer.self_attention import SelfAttention


class Block(AttentionLayer):
    """Base of the blocks: parts, each with a residual and a norm.

    Args:
        num_heads: As the subclasses say, and all that follow.
        within: Further options of the self-attention.
        across: Options of the cross-attention; None for a block without one.
        has_attention_norm: Whether a norm goes with the self-attention.
    """

    hidden_arguments = AttentionLayer.hidden_arguments | {
        "within",
        "across",
        "has_attention_norm",
    }

    def __init__(
        self,
        num_heads: int,
        *,
        within: dict[str, Any] | None = None,
        across: dict[str, Any] | None = None,
        has_attention_norm: bool = True,
        intermediate_dim: int,
        dropout: float,
        activation: Any,
        normalize_first: bool,
        norm_epsilon: float,
        norm: str,
        use_bias: bool,
        use_gate: bool,
        num_key_value_heads: int | None,
        attention_position: AttentionPosition | str | None,
        kernel_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        bias_regularizer: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.normalize_first = check_bool("normalize_first", normalize_first)
        self.norm_epsilon = check_positive("norm_epsilon", norm_epsilon)
        self.norm = norm
        options = projection_options(
            self,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
        )

        def make(kind: Any, name: str, *args: Any, **more: Any) -> Any:
            return kind(
                *args,
                **more,
                **options_of(options, name),
                dropout=dropout,
                use_bias=use_bias,
                dtype=self.dtype_policy,
                name=name,
            )

        self.attention = make(
            SelfAttention,
            "attention",
            num_heads,
            num_key_value_heads=num_key_value_heads,
            attention_position=attention_position,
            **(within or {}),
        )
        self.cross_attention = None
        if across is not None:
            self.cross_attention = make(
                CrossAttention,
                "cross_attention",
                num_heads,
                num_key_value_heads=num_key_value_heads,
                **across,
            )
        self.feed_forward = make(
            FeedForward,
            "feed_forward",
            intermediate_dim,
            activation=activation,
            use_gate=use_gate,
        )
        self.num_heads = self.attention.num_heads
        self.num_key_value_heads = self.attention.num_key_value_heads
        self.attention_position = self.attention.attention_position
        self.dropout = self.attention.dropout
        self.use_bias = self.attention.use_bias
        self.intermediate_dim = self.feed_forward.intermediate_dim
        self.activation = self.feed_forward.activation
        self.use_gate = self.feed_forward.use_gate

        def make_norm_of(part: str) -> keras.Layer:
            return make_norm(
                norm, self.norm_epsilon, self.dtype_policy, f"{part}_norm"
            )

        self.attention_norm = None
        if has_attention_norm:
            self.attention_norm = make_norm_of("attention")
        self.feed_forward_norm = make_norm_of("feed_forward")
        self.cross_attention_norm = None
        if across is not None:
            self.cross_attention_norm = make_norm_of("cross_attention")
        self.dropout_layer = keras.layers.Dropout(
            dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        if self.compute_dtype == "bfloat16":
            warn_of_slow_bfloat16()
        for sublayer in (
            self.attention,
            self.attention_norm,
            self.cross_attention,
            self.cross_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
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
        """What behind each part is added, normalised and handed on."""
        for part, norm in (
            (attention, self.attention_norm),
            (cross_attention, self.cross_attention_norm),
            (self.feed_forward, self.feed_forward_norm),
        ):
            if part is cross_attention and self.cross_attention is None:
                continue
            if norm is None:
                norm = _unchanged
            outputs = norm(x) if self.normalize_first else x
            if part is self.feed_forward:  # has a dropout of its own
                outputs = part(outputs, training=training)
            else:
                outputs = self.dropout_layer(part(outputs), training=training)
            x = x + outputs if self.normalize_first else norm(x + outputs)
        return x

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "activation": keras.activations.serialize(self.activation),
            "normalize_first": self.normalize_first,
            "norm_epsilon": self.norm_epsilon,
            "norm": self.norm,
            "use_bias": self.use_bias,
            "use_gate": self.use_gate,
            "num_key_value_heads": self.num_key_value_heads,
            "attention_position": keras.saving.serialize_keras_object(
                self.attention_position
            ),
            **projection_config(self),
        }


def _unchanged(x: Any) -> Any:
    return x
