"""Multi-head self-attention."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_bool,
    check_positive_int,
    check_rate,
    check_sequence_shape,
)
from keras_posenc.ops.attention import (
    attend as attend_values,
)
from keras_posenc.ops.attention import (
    attention_weights,
    in_blocks,
    swap_heads,
    weighted_values,
)
from keras_posenc.positional.attention_position import (
    AttentionPosition,
    check_attention_position,
)
from keras_posenc.transformer._attention_layer import AttentionLayer
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._sublayers import (
    make_dense,
    project,
    projection_config,
    projection_options,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class SelfAttention(AttentionLayer):
    """Every token looks at the tokens of its own sequence.

    Queries, keys and values come from one projection; the scores are scaled by
    `1 / sqrt(dim / num_heads)`. A padded token is never attended to, and
    counts as zeros, whatever it holds: NaN in padding reaches no token and no
    gradient. NaN in a token stays in its own row. A row of nothing but padding
    gives finite numbers.

    Args:
        num_heads: Number of heads; divides the width of the inputs.
        num_key_value_heads: Heads of keys and values, each shared by a group
            of query heads; divides `num_heads`, which it is by default.
        dropout: Rate of the dropout on the attention weights, in [0, 1).
        use_bias: Whether the projections have biases.
        attention_position: An `AttentionPosition`, or None.
        kernel_initializer: Initializer of the projections' kernels.
        bias_initializer: Initializer of their biases.
        kernel_regularizer: Regularizer of their kernels.
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: Where the tokens stand, for `attention_position`: `(seq,)`
            or `(batch, seq)`, integers or reals; 0, 1, 2 ... by default, from
            0 again in each segment of `segment_ids`. What padded tokens are
            given does not matter; a token at NaN gives NaN. Without an
            `attention_position` they change nothing.
        start_index: Where counting starts instead of 0, in each segment too:
            an integer or `(batch,)` integers. Not together with `positions`.
        segment_ids: Integers `(batch, seq)`: a token of a packed row attends
            to its own segment only.
        padding_mask: Bool `(batch, seq)`, True for a token.
        attention_mask: Bool `(batch, seq, seq)`: which query (second axis) may
            attend to which key (third axis). A query that may attend to
            nothing attends to everything alike, padding included, which counts
            as zeros.
        use_causal_mask: Whether a token sees only itself and what is before.
        return_attention_scores: Whether to return the weights as well.
        mask: The same as `padding_mask`; by default the mask that the inputs
            carry. With both, a token is what both call a token.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`, after their softmax.

    Raises:
        ValueError: An argument that is none of the above, such as a width that
            `num_heads` does not divide.

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
    """

    def __init__(
        self,
        num_heads: int,
        *,
        num_key_value_heads: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        attention_position: AttentionPosition | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = check_positive_int("num_heads", num_heads)
        self.num_key_value_heads = check_positive_int(
            "num_key_value_heads",
            num_heads if num_key_value_heads is None else num_key_value_heads,
        )
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_key_value_heads` must divide `num_heads`. Received: "
                f"num_key_value_heads={num_key_value_heads}, "
                f"num_heads={num_heads}"
            )
        self.dropout = check_rate("dropout", dropout)
        self.use_bias = check_bool("use_bias", use_bias)
        self.attention_position = check_attention_position(attention_position)
        options = projection_options(
            kernel_initializer, bias_initializer, kernel_regularizer
        )
        self.kernel_initializer = options["kernel_initializer"]
        self.bias_initializer = options["bias_initializer"]
        self.kernel_regularizer = options["kernel_regularizer"]
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        batch, seq, dim = input_shape
        if dim % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide "
                "the width of the inputs. Received: "
                f"num_heads={self.num_heads}, inputs of width {dim}"
            )
        head_dim = dim // self.num_heads
        heads = self.num_heads + 2 * self.num_key_value_heads
        # Width-dependent, and therefore created here.
        self.query_key_value = make_dense(
            self, heads * head_dim, "query_key_value"
        )
        self.query_key_value.build((batch, seq, dim))
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((batch, seq, dim))
        position = self.attention_position
        if position is not None and not position.built:
            position.build((batch, self.num_heads, seq, head_dim))
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
        positions = None
        if position is not None:
            positions = context.positions_for(position)
            if position.rotate is not None:
                query = _rotated(position, query, positions)
                key = _rotated(position, key, positions)
        weights = None
        if (
            return_attention_scores
            or (position is not None and position.values is not None)
            or (self.dropout and training)
        ):
            bias = self._bias(query, key, positions, positions)
            weights = attention_weights(query, key, context.mask, bias)
            dropped = self.dropout_layer(weights, training=training)
            attended = weighted_values(dropped, value)
            if position is not None and position.values is not None:
                addition = _check_hook(
                    position,
                    "values",
                    position.values(dropped, positions, positions),
                    query.shape,
                )
                if addition is not None:
                    attended += ops.cast(addition, self.compute_dtype)
        else:
            attended = self._attend_unseen(
                query, key, value, positions, context, training
            )
        # (batch, heads, seq, head_dim) -> (batch, seq, dim)
        attended = swap_heads(attended)
        outer = (context.batch, context.seq)
        if context.packing is None:
            dim = self.output_projection.units
            attended = ops.reshape(attended, (-1, dim))
            outputs = project(self.output_projection, attended, outer)
        else:
            attended = ops.reshape(
                attended, (*outer, self.output_projection.units)
            )
            outputs = project(self.output_projection, context.pack(attended))
        return (outputs, weights) if return_attention_scores else outputs

    def _attend_unseen(
        self,
        query: Any,
        key: Any,
        value: Any,
        positions: Any,
        context: Context,
        training: bool | None,
    ) -> Any:
        """Attends, some queries at a time where there are many."""

        def all_at_once() -> Any:
            bias = self._bias(query, key, positions, positions)
            return attend_values(query, key, value, context.mask, bias)

        def some(rows: Any) -> Any:
            queries = ops.take(query, rows, axis=2)
            bias = None
            if positions is not None:
                some_positions = ops.take(positions, rows, axis=1)
                bias = self._bias(queries, key, some_positions, positions)
            return attend_values(
                queries, key, value, context.mask_of(rows), bias
            )

        if training or not context.data_dependent_shapes:
            return all_at_once()
        # All blocks of a model ask about the same sizes.
        _, heads, _, dim = query.shape
        shape = context.batch, heads, context.seq, dim
        return in_blocks(shape, query.dtype, all_at_once, some)

    def _bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        position = self.attention_position
        if position is None or position.bias is None:
            return None
        bias = position.bias(query, key, query_positions, key_positions)
        shape = (*query.shape[:3], key.shape[2])
        return _check_hook(position, "bias", bias, shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "attention_position": keras.saving.serialize_keras_object(
                self.attention_position
            ),
            **projection_config(self),
        }

    def _project(self, x: Any, context: Context) -> tuple[Any, Any, Any]:
        """Inputs -> three of (batch, their heads, seq, head_dim)."""
        head_dim = x.shape[-1] // self.num_heads
        heads, kv_heads = self.num_heads, self.num_key_value_heads
        projected = ops.reshape(
            context.unpack(project(self.query_key_value, x)),
            (context.batch, context.seq, heads + 2 * kv_heads, head_dim),
        )
        query, key, value = ops.split(
            swap_heads(projected),
            # Equal parts are what mobile runtimes are fast at.
            3 if heads == kv_heads else [heads, heads + kv_heads],
            axis=1,
        )
        return query * head_dim**-0.5, key, value


def _rotated(position: AttentionPosition, x: Any, positions: Any) -> Any:
    rotated = position.rotate(x, positions)  # type: ignore[misc]
    rotated = _check_hook(
        position, "rotate", rotated, x.shape, broadcasts=False
    )
    return x if rotated is None else ops.cast(rotated, x.dtype)


def _check_hook(
    position: AttentionPosition,
    hook: str,
    result: Any,
    expected: Any,
    broadcasts: bool = True,
) -> Any:
    """Returns a hook's result; raises `ValueError` if its shape is wrong.

    What it was added to would often take another shape without a word.
    """
    if result is None:  # nothing to add this time
        return None
    result = ops.convert_to_tensor(result)
    if len(result.shape) == 0 and broadcasts:
        return result
    shape, expected = tuple(result.shape), tuple(expected)
    if len(shape) == len(expected) and all(
        size is None or wanted in (None, size) or (broadcasts and size == 1)
        for size, wanted in zip(shape, expected, strict=True)
    ):
        return result
    raise ValueError(
        f"The hook `{hook}` of {type(position).__name__} '{position.name}' "
        f"must return {'what broadcasts to ' * broadcasts}shape {expected}. "
        f"Received: shape {shape}"
    )
