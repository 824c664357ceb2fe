"""The feed-forward sublayer of a block."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_inputs,
    check_mask,
    check_sequence_shape,
    check_shape,
)
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.masks import hide_padding
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.transformer._options import (
    FeedForwardOptions,
    for_keras,
    keep_options,
    with_options,
)
from keras_posenc.transformer._quantized import QuantizedWithin
from keras_posenc.transformer._sublayers import make_dense, project


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(FeedForwardOptions, dropout=0.0)
class FeedForward(ConfiguredLayer, QuantizedWithin, keras.Layer):
    """Two projections with an activation between them, token by token.

    Args:
        intermediate_dim: Width between the two projections.
        **options: As for `FeedForwardOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        training: Whether dropout is active.
        mask: Bool `(batch, seq)`, True for a token; by default the mask that
            the inputs carry. Padding is replaced by zeros, so that it does
            not reach the gradients of the weights.

    Returns:
        `(batch, seq, dim)` in the compute dtype.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> feed_forward = kp.FeedForward(64, activation="gelu")
    >>> tuple(feed_forward(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Shazeer, 2020](https://arxiv.org/abs/2002.05202) (gates)
    """

    def __init__(
        self,
        intermediate_dim: int,
        **options: Unpack[FeedForwardOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, locals())
        keep_options(self, FeedForwardOptions, options)
        self.gate = None
        if self.use_gate:
            self.gate = make_dense(
                self, self.intermediate_dim, "gate", self.activation
            )
        self.intermediate = make_dense(
            self,
            self.intermediate_dim,
            "intermediate",
            None if self.use_gate else self.activation,
        )
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        *outer, dim = input_shape
        self.intermediate.build((*outer, dim))
        if self.gate is not None:
            self.gate.build((*outer, dim))
        # Created here, as the width is known now.
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((*outer, self.intermediate_dim))
        self.dropout_layer.build((*outer, dim))
        self.built = True

    def call(
        self, inputs: Any, *, training: bool | None = None, mask: Any = None
    ) -> Any:
        self._check_call(inputs, mask)
        if mask is not None:
            inputs = hide_padding(inputs, ops.cast(mask, "bool"))
        outer = outer_sizes(inputs)
        x = project(self.intermediate, inputs, (-1,))
        if self.gate is not None:
            x = x * project(self.gate, inputs, (-1,))
        outputs = project(self.output_projection, x, outer)
        return self.dropout_layer(outputs, training=training)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        self._check_call(inputs, mask)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def _check_call(self, inputs: Any, mask: Any) -> None:
        check_inputs(self, inputs)
        batch, seq, _ = inputs.shape
        sizes = {"batch": batch, "seq": seq}
        check_shape("mask", mask, ("batch", "seq"), sizes=sizes)
        check_mask("mask", mask)
