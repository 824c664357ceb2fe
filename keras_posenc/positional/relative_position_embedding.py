"""Shaw's relative keys and values, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import (
    arithmetic_dtype,
    clipped_index,
    nan_where_unknown,
)
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.relative import sum_by_distance, take_by_distance
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class RelativePositionEmbedding(AttentionPosition):
    """Adds learned vectors of the distance to keys and values.

    The score of a query and a key gains `query · a[distance]`, and the output
    for a query gains the weighted sum of `b[distance]`. Distances are clipped
    to `max_distance` on both sides, and all heads share the tables. No tensor
    has a vector for each pair of tokens: scores are looked up by distance, and
    weights are summed by distance.

    Args:
        max_distance: From this distance on all share a vector.
        values: Whether to add vectors to values, not only to keys. Without,
            the attention may run as one fused operation.
        embeddings_initializer: Initializer of both tables.
        embeddings_regularizer: Regularizer of both tables, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another width than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.RelativePositionEmbedding(16)
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 64), "float32")).shape)
    (2, 10, 64)

    References:
        - [Shaw et al., 2018](https://arxiv.org/abs/1803.02155)
    """

    def __init__(
        self,
        max_distance: int,
        *,
        values: bool = True,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_distance = check_positive_int("max_distance", max_distance)
        self.has_values = check_bool("values", values)
        if not self.has_values:
            # None: the hook is absent.
            self.values = None  # type: ignore[method-assign, assignment]
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )

    def build(self, input_shape: Any) -> None:
        for name in ("key_embeddings", "value_embeddings"):
            if name == "key_embeddings" or self.has_values:
                weight = self.add_weight(
                    shape=(2 * self.max_distance + 1, input_shape[-1]),
                    initializer=initializer_of(
                        self.embeddings_initializer, name
                    ),
                    regularizer=self.embeddings_regularizer,
                    name=name,
                )
                setattr(self, name, weight)
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(query)
        table = ops.cast(self.key_embeddings, dtype)
        check_built_for(self, "width", table.shape[-1], query.shape[-1])
        # (batch, heads, query, dim) -> (batch, heads, query, rows)
        scores = ops.matmul(ops.cast(query, dtype), ops.transpose(table))
        bias = take_by_distance(
            scores,
            clipped_index(
                query_positions,
                key_positions,
                max_distance=self.max_distance,
                exact=dtype,
            ),
        )
        return nan_where_unknown(
            bias, query_positions=query_positions, key_positions=key_positions
        )

    def values(
        self, weights: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(weights)
        table = ops.cast(self.value_embeddings, dtype)
        sums = sum_by_distance(
            ops.cast(weights, dtype),
            clipped_index(
                query_positions,
                key_positions,
                max_distance=self.max_distance,
                exact=dtype,
            ),
            rows=table.shape[0],
        )
        # (batch, heads, query, rows) -> (batch, heads, query, dim)
        return ops.matmul(sums, table)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "values": self.has_values,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
            "embeddings_regularizer": keras.regularizers.serialize(
                self.embeddings_regularizer
            ),
        }
