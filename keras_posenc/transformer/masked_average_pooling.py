"""The average of the real tokens of a sequence."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    NamedArguments,
    check_inputs,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.masks import hide_padding, resolve_mask


@keras.saving.register_keras_serializable(package="keras_posenc")
class MaskedAveragePooling1D(NamedArguments, keras.Layer):
    """Averages the unmasked tokens of each row; zeros if there are none.

    Keras's `GlobalAveragePooling1D` divides 0 by 0 on a row of nothing but
    padding. Sums are taken in float32 at least.

    Args:
        **kwargs: Those of `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry; without one every token counts.

    Returns:
        `(batch, dim)` in the compute dtype, without a mask.

    Raises:
        ValueError: Inputs that are not of rank 3, or a mask that does not fit.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> tokens = np.array([[[1.0], [3.0], [100.0]]], "float32")
    >>> pooling = kp.MaskedAveragePooling1D()
    >>> float(pooling(tokens, mask=np.array([[True, True, False]]))[0, 0])
    2.0
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        self.built = True

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, mask)
        wide = keras.backend.result_type(inputs.dtype, "float32")
        x = ops.cast(inputs, wide)
        if mask is None:
            mask = ops.ones(ops.shape(x)[:2], dtype="bool")
        total = ops.sum(hide_padding(x, mask), axis=1)
        count = ops.sum(ops.cast(mask, wide), axis=1, keepdims=True)
        return ops.cast(
            total / ops.maximum(count, ops.ones_like(count)),
            self.compute_dtype,
        )

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None

    def compute_output_spec(self, inputs: Any, *, mask: Any = None) -> Any:
        self._check_call(inputs, mask)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        batch, _, dim = input_shape
        return (batch, dim)

    def _check_call(self, inputs: Any, mask: Any) -> None:
        check_inputs(self, inputs)
        batch, seq, _ = inputs.shape
        sizes = {"batch": batch, "seq": seq}
        check_shape("mask", mask, ("batch", "seq"), sizes=sizes)
