"""DeBERTa's disentangled attention, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import (
    arithmetic_dtype,
    clipped_index,
    nan_where_unknown,
)
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.named import config_of
from keras_posenc.ops.relative import (
    log_bucket_table,
    matmul_rows_of_heads,
    take_by_distance,
)
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class DisentangledBias(AttentionPosition):
    """Adds scores between contents and distances, for query and for key.

    Each bucket of distances has two learned vectors for each head. The score
    of a query and a key gains the product of the query with the first vector
    of their bucket, and of the key with the second one. On each side,
    `num_buckets // 2` distances have a bucket each; the other buckets are
    ranges that grow geometrically up to `max_distance`. Float positions count
    by the whole part of their difference.

    Args:
        num_buckets: Number of buckets on each side, at least 4.
        max_distance: From this distance on all share a bucket; above
            `num_buckets // 2 + 1`.
        embeddings_initializer: Initializer of the vectors.
        embeddings_regularizer: Regularizer of the vectors, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of another
            shape than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.DisentangledBias(16, max_distance=64)
    >>> attention = kp.SelfAttention(4, attention_position=position)
    >>> tuple(attention(np.ones((2, 10, 32), "float32")).shape)
    (2, 10, 32)

    References:
        - [He et al., 2020](https://arxiv.org/abs/2006.03654)
    """

    def __init__(
        self,
        num_buckets: int = 256,
        *,
        max_distance: int = 512,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = check_positive_int("num_buckets", num_buckets)
        self.max_distance = check_positive_int("max_distance", max_distance)
        if num_buckets < 4:
            raise ValueError(
                "`num_buckets` must be at least 4. "
                f"Received: num_buckets={num_buckets}"
            )
        if max_distance <= num_buckets // 2 + 1:
            raise ValueError(
                f"`max_distance` must be above {num_buckets // 2 + 1}, one "
                "more than the distances with a bucket each. Received: "
                f"max_distance={max_distance}, num_buckets={num_buckets}"
            )
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )

    def build(self, input_shape: Any) -> None:
        _, heads, _, dim = input_shape
        # For queries, and for keys.
        self.key_embeddings, self.query_embeddings = (
            self.add_weight(
                shape=(2 * self.num_buckets, heads, dim),
                initializer=initializer_of(self.embeddings_initializer, name),
                regularizer=self.embeddings_regularizer,
                name=name,
            )
            for name in ("key_embeddings", "query_embeddings")
        )
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        dtype = arithmetic_dtype(query)
        shape = (query.shape[1], query.shape[-1])
        known = tuple(self.key_embeddings.shape[1:])
        check_built_for(self, "(heads, width)", known, shape)
        buckets = ops.convert_to_tensor(
            log_bucket_table(self.num_buckets, max_distance=self.max_distance)
        )
        distance = clipped_index(
            query_positions,
            key_positions,
            max_distance=self.max_distance,
            exact=dtype,
        )
        index = ops.take(buckets, distance, axis=0)  # (batch, query, key)
        by_query = take_by_distance(
            matmul_rows_of_heads(
                ops.cast(query, dtype), ops.cast(self.key_embeddings, dtype)
            ),
            index,
        )
        # Queries are scaled, so what is used in their place must be too.
        table = ops.cast(self.query_embeddings, dtype) * shape[1] ** -0.5
        by_key = take_by_distance(
            matmul_rows_of_heads(ops.cast(key, dtype), table),
            ops.transpose(index, (0, 2, 1)),
        )
        return nan_where_unknown(
            by_query + ops.transpose(by_key, (0, 1, 3, 2)),
            query_positions=query_positions,
            key_positions=key_positions,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
