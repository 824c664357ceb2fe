"""Several poolings of one sequence, one after the other in one vector."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.named import config_of
from keras_posenc.transformer._pooling import Pooling1D


@keras.saving.register_keras_serializable(package="keras_posenc")
class ConcatenatedPooling1D(Pooling1D):
    """Pools a sequence in several ways, and concatenates the vectors.

    Args:
        poolings: Layers of this package that pool a sequence, such as
            `MaskedAveragePooling1D`; at least one.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one every token counts.

    Returns:
        `(batch, poolings * dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: There is no pooling, or something else among them; inputs
            are not of rank 3, or the mask does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0]]], "float32")
    >>> poolings = [kp.MaskedAveragePooling1D(), kp.MaskedMaxPooling1D()]
    >>> print(np.array(kp.ConcatenatedPooling1D(poolings)(tokens)))
    [[2. 3.]]
    """

    def __init__(self, poolings: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        are_several = isinstance(poolings, list | tuple) and bool(poolings)
        self.poolings = [
            keras.saving.deserialize_keras_object(each)
            if isinstance(each, dict)
            else each
            for each in (poolings if are_several else [])
        ]
        if not are_several or not all(
            isinstance(each, Pooling1D) for each in self.poolings
        ):
            raise ValueError(
                "`poolings` must be a list of pooling layers of keras_posenc, "
                "such as [kp.FirstTokenPooling1D(), "
                "kp.MaskedAveragePooling1D()]. Received: "
                f"poolings={poolings!r}"
            )

    def pool(self, x: Any, mask: Any) -> Any:
        found = [each.pool(x, mask) for each in self.poolings]
        # Means are float32 where a maximum has the dtype of the inputs.
        return ops.concatenate(
            [ops.cast(each, self.compute_dtype) for each in found], axis=-1
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        shapes = [
            each.compute_output_shape(input_shape) for each in self.poolings
        ]
        return (shapes[0][0], sum(width for _, width in shapes))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
