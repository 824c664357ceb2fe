"""Multi-head self-attention."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.ops.attention import swap_heads
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.positional.attention_kinds import check_attention_position
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attending import (
    attend_between,
    check_causal,
    places_of,
    rotated,
    steps_of,
)
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    check_heads,
    check_window,
    head_width,
)
from keras_posenc.transformer._context import Context
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
class SelfAttention(AttentionLayer):
    """Every token attends to the tokens of its own sequence.

    Queries, keys and values come from one projection; the scores are scaled by
    `1 / sqrt(head_dim)`. A padded token is never attended to and is
    replaced by zeros: NaN in padding reaches no token and no gradient. NaN in a
    token can make its whole row NaN, earlier tokens under a causal mask too,
    but no other row. The outputs of a row that is all padding are finite.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            `head_dim` is given.
        attention_position: An `AttentionPosition`, the name of a kind, such as
            `"rotary"`, `"alibi"` or `"t5"`, or None.
        attention_window: How many tokens a token sees on either side of
            itself, counted in the row; None for all.
        **options: As for `AttentionOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: Positions of the tokens, for `attention_position`: `(seq,)`
            or `(batch, seq)`, integers or floats; 0, 1, 2 ... by default, from
            0 again in each segment of `segment_ids`. Positions of padding do
            not matter; a token at position NaN gives NaN. Without an
            `attention_position` they have no effect.
        start_index: Where counting starts instead of 0, in each segment too:
            an integer or `(batch,)` integers. Not together with `positions`.
        segment_ids: Integers `(batch, seq)`: a token of a packed row attends
            to its own segment only. 0 is a segment like others: without a
            mask, NaN in padding makes the whole row NaN.
        padding_mask: Bool `(batch, seq)`, True for a token.
        attention_mask: Bool `(batch, seq, seq)`: which query (second axis) may
            attend to which key (third axis). A query that may attend to
            nothing attends to all tokens equally, padding included, whose
            values are zeros.
        use_causal_mask: Whether a token sees only itself and earlier ones.
        return_attention_scores: Whether to return the weights as well.
        mask: The same as `padding_mask`; by default the mask that the inputs
            carry. With both, real tokens are those of both.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`, after their softmax.

    Raises:
        ValueError: An invalid argument, such as a width that
            `num_heads` does not divide, without a `head_dim`.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> attention = kp.SelfAttention(num_heads=4, num_key_value_heads=2)
    >>> tuple(attention(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245) (grouped
          heads)
        - [Beltagy et al., 2020](https://arxiv.org/abs/2004.05150) (windows)
        - [Henry et al., 2020](https://arxiv.org/abs/2010.04245) (norms of
          queries and keys)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention_position: AttentionPosition | str | None = None,
        attention_window: int | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_options(self, AttentionOptions, options)
        self.num_heads, self.num_key_value_heads = check_heads(
            num_heads, options["num_key_value_heads"]
        )
        self.attention_position = check_attention_position(
            attention_position, self.dtype_policy
        )
        self.attention_window = check_window(attention_window)
        self.query_norm, self.key_norm = make_head_norms(self)
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        batch, seq, dim = input_shape
        head_dim = head_width(self, dim)
        heads = self.num_heads + 2 * self.num_key_value_heads
        # Created here, as the width is known now.
        self.query_key_value = make_dense(
            self,
            heads * head_dim,
            "query_key_value",
            use_bias=self.query_key_value_bias,
        )
        self.query_key_value.build((batch, seq, dim))
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((batch, seq, self.num_heads * head_dim))
        build_head_norms(self, head_dim)
        position = self.attention_position
        if position is not None and not position.built:
            shape = batch, self.num_heads, seq, head_dim
            if position.steps is None:
                position.build(shape)
            else:
                position.build(shape, (batch, seq, dim))
        self.dropout_layer.build((batch, self.num_heads, seq, seq))
        self.built = True

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        query, key, value = self._project(x, context)
        position = self.attention_position
        check_causal(position, context)
        steps = steps_of(position, x, context, self.num_heads)
        context = context.within(self.attention_window)
        return attend_between(
            self,
            rotated(position, query, context.queries),
            rotated(position, key, context.keys, "rotate_keys"),
            value,
            context,
            places=places_of(steps, context.queries, context.keys),
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def empty_cache(self, batch: Any, length: Any) -> dict[str, Any]:
        """Makes buffers for the keys and values of some tokens, all zeros."""
        head_dim = head_width(self, self.output_projection.units)
        shape = (batch, self.num_key_value_heads, length, head_dim)
        zeros = ops.zeros(shape, self.compute_dtype)
        cache = {"key": zeros, "value": zeros}
        position = self.attention_position
        if position is not None and position.widening > 1:
            wide = (*shape[:-1], head_dim * position.widening)
            cache["key"] = ops.zeros(wide, self.compute_dtype)
        if position is not None and position.steps is not None:
            # Not in a low precision: sums over a long text need more.
            cache["steps"] = ops.zeros(
                (batch, self.num_heads, length, 1), arithmetic_dtype(zeros)
            )
        return cache

    def attend_cached(
        self, x: Any, context: Context, cache: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Computes the outputs of further tokens, and extend the cache.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            cache: As `empty_cache` makes it; keys are kept as rotated.
        """
        query, key, value = self._project(x, context)
        position, slots = self.attention_position, context.slots
        assert slots is not None
        new = {
            "key": rotated(position, key, context.queries, "rotate_keys"),
            "value": value,
        }
        steps = steps_of(position, x, context, self.num_heads)
        if steps is not None:
            new["steps"] = steps
        context = context.within(self.attention_window)
        cache = {
            name: slots.write(cache[name], each, axis=2)
            for name, each in new.items()
        }
        outputs = attend_between(
            self,
            rotated(position, query, context.queries),
            cache["key"],
            cache["value"],
            context,
            places=places_of(cache.get("steps"), context.queries, context.keys),
            return_attention_scores=False,
            training=False,
        )
        return outputs, cache

    def _project(self, x: Any, context: Context) -> tuple[Any, Any, Any]:
        """Projects inputs to three of (batch, their heads, seq, head_dim)."""
        head_dim = head_width(self, x.shape[-1])
        heads, kv_heads = self.num_heads, self.num_key_value_heads
        projected = ops.reshape(
            context.unpack(project(self.query_key_value, x)),
            (
                context.batch,
                context.queries.length,
                heads + 2 * kv_heads,
                head_dim,
            ),
        )
        query, key, value = ops.split(
            swap_heads(projected),
            # In equal parts, which mobile runtimes are fast at.
            3 if heads == kv_heads else [heads, heads + kv_heads],
            axis=1,
        )
        query = normalized_heads(self.query_norm, query)
        key = normalized_heads(self.key_norm, key)
        return query * head_dim**-0.5, key, value
