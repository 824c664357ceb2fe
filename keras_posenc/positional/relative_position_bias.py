"""T5's relative position biases, as a layer."""

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
from keras_posenc.ops.named import config_of
from keras_posenc.ops.relative import bucket_table, take_rows_as_heads
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class RelativePositionBias(AttentionPosition):
    """Adds a learned number to each score, by bucket of distances and head.

    Half of the buckets hold one distance each, the others ranges that grow
    geometrically; the last one holds `max_distance` and all beyond. T5 shares
    one such layer between all its blocks. Float positions count by the whole
    part of their difference.

    Args:
        num_buckets: Number of buckets; even with `bidirectional`, half of them
            for later keys.
        max_distance: From this distance on all share a bucket; above the
            number of buckets with one distance each.
        bidirectional: Whether later keys have buckets. If False, they have
            distance 0: for use with `use_causal_mask=True`.
        embeddings_initializer: Initializer of the numbers.
        embeddings_regularizer: Regularizer of the numbers, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> encoder = kp.TransformerEncoder(
    ...     2, num_heads=4, attention_position=kp.RelativePositionBias()
    ... )
    >>> tuple(encoder(np.ones((2, 10, 64), "float32")).shape)
    (2, 10, 64)

    References:
        - [Raffel et al., 2019](https://arxiv.org/abs/1910.10683)
    """

    def __init__(
        self,
        num_buckets: int = 32,
        *,
        max_distance: int = 128,
        bidirectional: bool = True,
        embeddings_initializer: Any = "random_normal",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_buckets = check_positive_int("num_buckets", num_buckets)
        self.max_distance = check_positive_int("max_distance", max_distance)
        self.bidirectional = check_bool("bidirectional", bidirectional)
        directions = 2 if self.bidirectional else 1
        if self.num_buckets % directions or self.num_buckets < 2 * directions:
            raise ValueError(
                f"`num_buckets` must be at least {2 * directions}"
                + (", and even," if self.bidirectional else "")
                + f" with bidirectional={self.bidirectional}. "
                f"Received: num_buckets={num_buckets}"
            )
        exact = self.num_buckets // directions // 2
        if self.max_distance <= exact:
            raise ValueError(
                f"`max_distance` must be above {exact}, the number of buckets "
                f"with one distance each. Received: max_distance={max_distance}"
                f", num_buckets={num_buckets}"
            )
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            shape=(self.num_buckets, input_shape[1]),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            name="embeddings",
        )
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        check_built_for(self, "heads", self.embeddings.shape[1], query.shape[1])
        buckets = bucket_table(
            self.num_buckets,
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        # (rows, heads): first by distance, then for each pair of tokens.
        by_distance = ops.take(
            self.embeddings, ops.convert_to_tensor(buckets), axis=0
        )
        bias = take_rows_as_heads(
            by_distance,
            clipped_index(
                query_positions,
                key_positions,
                max_distance=self.max_distance,
                exact=arithmetic_dtype(query),
            ),
        )
        return nan_where_unknown(
            bias, query_positions=query_positions, key_positions=key_positions
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
