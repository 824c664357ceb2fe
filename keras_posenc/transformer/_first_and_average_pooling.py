"""The first token and the average of the others, as in DINOv2."""

from typing import Any

import keras
from keras import ops

from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="FirstAndAveragePooling1D"
)
class FirstAndAveragePooling1D(Pooling1D):
    """`(batch, 1 + patches, dim)` -> `(batch, 2 * dim)`, without a mask."""

    def pool(self, x: Any, mask: Any) -> Any:
        return ops.concatenate([x[:, 0], ops.mean(x[:, 1:], axis=1)], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, _, dim = input_shape
        return (batch, 2 * dim)
