"""The bias of logits that are products with embeddings."""

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="LogitsBias"
)
class LogitsBias(keras.Layer):
    """Adds a learned number to the logits of each id.

    A table of embeddings that also computes logits has no biases.

    Call arguments:
        inputs: Logits, `(..., vocabulary)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight(
            shape=(input_shape[-1],), initializer="zeros", name="bias"
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        return inputs + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)
