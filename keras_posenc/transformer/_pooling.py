"""The base of the layers that pool a sequence into one vector."""

from typing import Any

import keras

from keras_posenc.ops.arguments import (
    check_inputs,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.named import NamedArguments


class Pooling1D(NamedArguments, keras.Layer):
    """Base of `(batch, seq, dim)` -> `(batch, dim)`.

    A subclass defines `pool(x, mask)`, whose mask is bool `(batch, seq)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        self.built = True

    def pool(self, x: Any, mask: Any) -> Any:
        raise NotImplementedError

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        mask = resolve_mask(mask, inputs)
        self._check_call(inputs, mask)
        if mask is None:
            mask = keras.ops.ones(keras.ops.shape(inputs)[:2], dtype="bool")
        return keras.ops.cast(self.pool(inputs, mask), self.compute_dtype)

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
