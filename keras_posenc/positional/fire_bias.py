"""Functional interpolation of relative positions, as a layer."""

import math
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_positive, check_positive_int
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import arithmetic_dtype, distances
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.learned_biases import fire_bias
from keras_posenc.ops.named import config_of
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class FireBias(AttentionPosition):
    """Computes each head's bias with a small network of the distance.

    The network's input is `log(1 + c distance) / log(1 + c reach)`, a number
    from 0 to 1 for a text of any length. `reach` is how far the query could
    look back, which is its own position, or a learned threshold if that is
    larger. `c` is learned, as a logarithm like the threshold, so that both stay
    positive. The last layer of the network has no bias, which would not change
    a softmax. The paper is about causal models. For later keys
    (`bidirectional=True`) the distance is absolute, and `reach` is the position
    of the later of the two, which does not change earlier keys.

    Unlike in other kinds of relative positions, the bias of two tokens depends
    on their positions, not only on the distance: `positions` should count
    from 0.

    Args:
        hidden_dim: Width of the network's one hidden layer.
        initial_threshold: The initial threshold, in tokens.
        bidirectional: Whether later keys have distances. If False, they have
            distance 0: for use with `use_causal_mask=True`.
        kernel_initializer: Initializer of the network's kernels.
        kernel_regularizer: Regularizer of both kernels, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of
            another number of heads than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.FireBias()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Li et al., 2023](https://arxiv.org/abs/2310.04418)
    """

    is_absolute = True

    def __init__(
        self,
        hidden_dim: int = 32,
        *,
        initial_threshold: float = 512.0,
        bidirectional: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = check_positive_int("hidden_dim", hidden_dim)
        self.initial_threshold = check_positive(
            "initial_threshold", initial_threshold
        )
        self.bidirectional = check_bool("bidirectional", bidirectional)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        heads, kernel = input_shape[1], self.kernel_initializer
        for name, shape, initializer in (
            ("log_rate", (), keras.initializers.Constant(math.log(0.1))),
            ("log_threshold_factor", (), "zeros"),
            ("hidden_kernel", (1, self.hidden_dim), kernel),
            ("hidden_bias", (self.hidden_dim,), "zeros"),
            ("output_kernel", (self.hidden_dim, heads), kernel),
        ):
            weight = self.add_weight(
                shape=shape,
                initializer=initializer_of(initializer, name),
                regularizer=(
                    self.kernel_regularizer if initializer is kernel else None
                ),
                name=name,
            )
            setattr(self, name, weight)
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        check_built_for(
            self, "heads", self.output_kernel.shape[1], query.shape[1]
        )
        dtype = arithmetic_dtype(query)
        log_rate, log_factor, hidden, hidden_bias, output = (
            ops.cast(weight, dtype) for weight in self.weights
        )
        reach = ops.expand_dims(ops.cast(query_positions, dtype), -1)
        if self.bidirectional:
            later = ops.expand_dims(ops.cast(key_positions, dtype), -2)
            reach = ops.maximum(reach, later)
        return fire_bias(
            distances(
                query_positions,
                key_positions,
                bidirectional=self.bidirectional,
                dtype=dtype,
            ),
            reach=reach,
            rate=ops.exp(log_rate),
            threshold=self.initial_threshold * ops.exp(log_factor),
            hidden_kernel=hidden,
            hidden_bias=hidden_bias,
            output_kernel=output,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
