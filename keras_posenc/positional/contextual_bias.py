"""Contextual positions, CoPE, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.contextual import (
    contextual_positions,
    interpolated_scores,
)
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class ContextualBias(AttentionPosition):
    """Each query counts back over the keys that matter to it, such as words.

    A key counts by the sigmoid of its score, and its position is the sum of
    these from the key up to the query. The score gains the product of the
    query with the learned vector of that position, interpolated between the
    vectors of the next whole positions. For causal attention. `positions` have
    no effect, only the order of the tokens. It computes the scores twice, and
    looks up two numbers for each pair of tokens.

    Args:
        max_position: From this position on, all share a vector.
        embeddings_initializer: Initializer of the vectors, which all heads
            share.
        embeddings_regularizer: Regularizer of the vectors, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; queries of another width than built
            for; attention that is not causal.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.ContextualBias()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> x = np.ones((2, 10, 16), "float32")
    >>> tuple(layer(x, use_causal_mask=True).shape)
    (2, 10, 16)

    References:
        - [Golovneva et al., 2024](https://arxiv.org/abs/2405.18719)
    """

    causal_only = True

    def __init__(
        self,
        max_position: int = 64,
        *,
        embeddings_initializer: Any = "zeros",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_position = check_positive_int("max_position", max_position)
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )

    def build(self, input_shape: Any) -> None:
        self.embeddings = self.add_weight(
            shape=(self.max_position + 1, input_shape[-1]),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            name="embeddings",
        )
        self.built = True

    def contextual_bias(
        self,
        query: Any,
        key: Any,
        mask: Any,
        query_places: Any,
        key_places: Any,
    ) -> Any:
        width = query.shape[-1]
        check_built_for(self, "width", self.embeddings.shape[1], width)
        dtype = arithmetic_dtype(query)
        # In the paper's code queries are not scaled here.
        embeddings = ops.cast(self.embeddings, dtype) * width**0.5
        return interpolated_scores(
            ops.matmul(ops.cast(query, dtype), ops.transpose(embeddings)),
            contextual_positions(query, key, mask=mask, dtype=dtype),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
