"""The embedding of the second text of a pair."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="SecondTextEmbedding"
)
class SecondTextEmbedding(keras.Layer):
    """Adds a vector to all tokens after the first separator of their row.

    BERT has a vector for each type of tokens, 0 and 1. The vector here is
    their difference: that of type 0 can be added to all embeddings.

    Args:
        separator_id: The id after which the second text begins.
        **kwargs: As for `keras.Layer`.

    Call arguments:
        inputs: Embeddings, `(batch, seq, dim)`.
        ids: Their ids, integers of shape `(batch, seq)`.
    """

    def __init__(self, separator_id: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.separator_id = separator_id
        self.supports_masking = True

    def build(self, inputs_shape: Any, ids_shape: Any = None) -> None:
        self.embedding = self.add_weight(
            name="embedding",
            shape=(inputs_shape[-1],),
            initializer="zeros",
        )

    def call(self, inputs: Any, ids: Any) -> Any:
        separators = ops.cast(ops.equal(ids, self.separator_id), "int32")
        is_second = ops.cumsum(separators, axis=1) > separators
        is_second = ops.expand_dims(ops.cast(is_second, inputs.dtype), -1)
        # (batch, seq, 1) * (dim,)
        return inputs + is_second * ops.cast(self.embedding, inputs.dtype)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return mask

    def compute_output_shape(
        self, inputs_shape: Any, ids_shape: Any = None
    ) -> tuple[Any, ...]:
        return tuple(inputs_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "separator_id": self.separator_id}
