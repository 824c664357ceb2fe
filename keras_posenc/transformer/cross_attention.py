"""Multi-head attention of one sequence to another."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.ops.attention import swap_heads
from keras_posenc.ops.packing import Packing
from keras_posenc.ops.sides import Side
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attending import (
    attend_between,
    rotated,
)
from keras_posenc.transformer._attention_layer import (
    check_heads,
    head_width,
)
from keras_posenc.transformer._context import Context, Memory
from keras_posenc.transformer._decoding_layer import (
    DecodingLayer,
    check_cross_attention_position,
)
from keras_posenc.transformer._options import (
    AttentionOptions,
    for_keras,
    keep_options,
    with_options,
)
from keras_posenc.transformer._sublayers import (
    build_head_norms,
    make_dense,
    make_head_norms,
    normalized_heads,
    project,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(AttentionOptions, dropout=0.0)
class CrossAttention(DecodingLayer):
    """Every token attends to the tokens of a memory, such as encoder outputs.

    Queries come from the inputs, keys and values from the memory, which has a
    length of its own. Padding of the memory is never attended to and is
    replaced by zeros. A memory that is all padding gives finite outputs.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            `head_dim` is given.
        attention_position: An `AttentionPosition`, which gets the positions of
            queries in the inputs and of keys in the memory; the name of a
            kind, such as `"rotary"`; or None. Not allowed are those that
            depend on the length of a row (a `RotaryEmbedding` of the type
            `"dynamic"` or `"longrope"`), those that count keys by the position
            of the query (`ScalableSoftmax`, `AttentionTemperature`), and those
            that distinguish earlier keys from later ones
            (`bidirectional=False`).
        memory_dim: Width of the memory; by default that of the inputs.
        **options: As for `AttentionOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        memory: Float tensor of shape `(batch, source, memory_dim)`.
        positions: Positions of the tokens of the inputs, as in `SelfAttention`.
        start_index: Where their counting starts, as in `SelfAttention`.
        segment_ids: Integers `(batch, seq)`, of packed rows.
        memory_positions: Positions of the tokens of the memory, `(source,)` or
            `(batch, source)`; 0, 1, 2 ... by default.
        memory_segment_ids: Integers `(batch, source)`: a token attends to
            tokens with its own segment's id. Without them, to all.
        memory_mask: Bool `(batch, source)`, True for a token; by default the
            mask that the memory carries.
        attention_mask: Bool `(batch, seq, source)`: which query may attend to
            which key. A query that may attend to nothing attends to all keys
            equally.
        mask: Bool `(batch, seq)`, which tokens of the inputs are real; by
            default the mask that they carry. Padding is replaced by zeros.
        padding_mask: The same as `mask`. With both, real tokens are those of
            both.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, source)`, after their softmax.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> attention = kp.CrossAttention(num_heads=4)
    >>> queries = np.ones((2, 3, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(attention(queries, memory=memory).shape)
    (2, 3, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245) (grouped
          heads)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention_position: AttentionPosition | str | None = None,
        memory_dim: int | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_options(self, AttentionOptions, options)
        self.num_heads, self.num_key_value_heads = check_heads(
            num_heads, options["num_key_value_heads"]
        )
        self.attention_position = check_cross_attention_position(
            attention_position, self.dtype_policy
        )
        self.cross_attention_position = self.attention_position
        self.memory_dim = memory_dim
        if memory_dim is not None:
            check_positive_int("memory_dim", memory_dim)
        self.query_norm, self.key_norm = make_head_norms(self)
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        batch, seq, dim = input_shape
        head_dim = head_width(self, dim)
        memory_dim = dim if self.memory_dim is None else self.memory_dim
        # Created here, as the width is known now.
        width, bias = self.num_heads * head_dim, self.query_key_value_bias
        self.query = make_dense(self, width, "query", use_bias=bias)
        self.query.build((batch, seq, dim))
        self.key_value = make_dense(
            self,
            2 * self.num_key_value_heads * head_dim,
            "key_value",
            use_bias=bias,
        )
        self.key_value.build((batch, None, memory_dim))
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((batch, seq, width))
        build_head_norms(self, head_dim)
        position = self.attention_position
        if position is not None and not position.built:
            position.build((batch, self.num_heads, seq, head_dim))
        self.dropout_layer.build((batch, self.num_heads, seq, None))
        self.built = True

    # Unlike a block, it needs a memory, and cannot be causal.
    def call(  # type: ignore[override]
        self,
        inputs: Any,
        *,
        memory: Any,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        padding_mask: Any = None,
        memory_positions: Any = None,
        memory_segment_ids: Any = None,
        memory_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        return super().call(
            inputs,
            memory=memory,
            positions=positions,
            start_index=start_index,
            segment_ids=segment_ids,
            padding_mask=padding_mask,
            use_causal_mask=False,
            memory_positions=memory_positions,
            memory_segment_ids=memory_segment_ids,
            memory_mask=memory_mask,
            memory_attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            mask=mask,
            training=training,
        )

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        **call: Any,
    ) -> Any:
        outputs = super().compute_output_spec(
            inputs,
            memory_attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            **call,
        )
        if not return_attention_scores:
            return outputs
        outputs, _, weights = outputs
        return outputs, weights

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        memory = context.memory
        assert memory is not None
        return self.read(
            x,
            memory,
            self.remember(memory.x, memory.context.keys, memory.packing),
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def remember(
        self, memory: Any, keys: Side, packing: Packing | None = None
    ) -> dict[str, Any]:
        """Computes the rotated keys and values of a memory, once for all steps.

        Args:
            memory: `(batch, source, memory_dim)`, in the compute dtype.
            keys: The tokens of the memory.
            packing: How it is packed, if it is.

        Returns:
            `"key"` and `"value"`, `(batch, key_value_heads, source, head_dim)`;
            keys are wider if their position widens them.
        """
        projected = project(self.key_value, memory)
        batch, source = ops.shape(memory)[:2]
        if packing is not None:
            projected = packing.unpack(projected)
            # Not `memory`'s shape: tf2onnx 1.17 would read that of packed rows.
            batch, source = packing.shape
        kv_heads = self.num_key_value_heads
        head_dim = head_width(self, self.output_projection.units)
        projected = ops.reshape(
            projected, (batch, source, 2 * kv_heads, head_dim)
        )
        key, value = ops.split(swap_heads(projected), 2, axis=1)
        key = normalized_heads(self.key_norm, key)
        key = rotated(self.attention_position, key, keys, "rotate_keys")
        return {"key": key, "value": value}

    def read(
        self,
        x: Any,
        memory: Memory,
        remembered: dict[str, Any],
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        """Attends with queries `(batch, query, dim)` to a remembered memory."""
        context = memory.context
        head_dim = head_width(self, x.shape[-1])
        query = ops.reshape(
            context.unpack(project(self.query, x)),
            (
                context.batch,
                context.queries.length,
                self.num_heads,
                head_dim,
            ),
        )
        query = normalized_heads(self.query_norm, swap_heads(query))
        query = query * head_dim**-0.5
        return attend_between(
            self,
            rotated(self.attention_position, query, context.queries),
            remembered["key"],
            remembered["value"],
            context,
            return_attention_scores=return_attention_scores,
            training=training,
        )
