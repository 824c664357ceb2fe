"""Transformer-XL's relative positions, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_max_wavelength, check_positive_int
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.attention import matmul_by_groups
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.ops.named import config_of
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.transformer_xl import transformer_xl_scores
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class TransformerXLBias(AttentionPosition):
    """Adds scores of the distance: for each query, and for all queries.

    The score `(q · k + u · k + (q + v) · W R(i - j)) / sqrt(dim)` of a query
    at `i` and a key at `j` has a content bias `u` and a position bias `v` of
    each head, and a projection `W` of the sinusoidal encoding `R` of the
    distance. It works for any length and any positions. `i` and `j` are
    encoded separately, which costs a product as wide as the encoding in each
    head, and needs no shift.

    Args:
        encoding_dim: Width of the encoding, even; by default that of all heads
            together, as in the paper. A smaller one is faster.
        max_wavelength: The base of the progression of wavelengths, at least 1.
        kernel_initializer: Initializer of the projection.
        bias_initializer: Initializer of the two biases.
        kernel_regularizer: Regularizer of the projection, or None.
        bias_regularizer: Regularizer of the two biases, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, an odd width, or
            queries of another shape than built for.

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.TransformerXLBias()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    References:
        - [Dai et al., 2019](https://arxiv.org/abs/1901.02860)
    """

    def __init__(
        self,
        encoding_dim: int | None = None,
        *,
        max_wavelength: float = 10000,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if encoding_dim is not None:
            encoding_dim = check_positive_int("encoding_dim", encoding_dim)
            if encoding_dim % 2:
                raise ValueError(
                    "`encoding_dim` must be even: a cosine for each sine. "
                    f"Received: encoding_dim={encoding_dim}"
                )
        self.encoding_dim = encoding_dim
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        _, heads, _, dim = input_shape
        width = self.encoding_dim or heads * dim
        if width % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' needs an even width, or "
                "an `encoding_dim`. Received: "
                f"{heads} heads of {dim} features each"
            )
        self.kernel = self.add_weight(
            shape=(width, heads * dim),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            name="kernel",
        )
        self.content_bias, self.position_bias = (
            self.add_weight(
                shape=(heads, dim),
                initializer=initializer_of(self.bias_initializer, name),
                regularizer=self.bias_regularizer,
                name=name,
            )
            for name in ("content_bias", "position_bias")
        )
        self.built = True

    def bias(
        self, query: Any, key: Any, query_positions: Any, key_positions: Any
    ) -> Any:
        batch, heads, _, dim = ops.shape(query)
        check_built_for(
            self, "(heads, width)", tuple(self.content_bias.shape), (heads, dim)
        )
        dtype = arithmetic_dtype(query)
        # Scaled, as queries are.
        content, position = (
            ops.expand_dims(ops.cast(bias, dtype) * dim**-0.5, (0, 2))
            for bias in (self.content_bias, self.position_bias)
        )
        width = self.kernel.shape[0]
        kernel = ops.reshape(ops.cast(self.kernel, dtype), (width, heads, dim))
        by_position = transformer_xl_scores(
            ops.cast(query, dtype) + position,
            kernel,
            query_positions=query_positions,
            key_positions=key_positions,
            rates=frequencies(width, max_wavelength=self.max_wavelength),
            dtype=dtype,
        )
        # (batch, heads, 1, dim) by the keys -> (batch, heads, 1, key).
        # Transposed here: tf2onnx forgets to transpose a product's input in a
        # branch of a condition.
        by_content = matmul_by_groups(
            ops.broadcast_to(content, (batch, heads, 1, dim)),
            ops.swapaxes(ops.cast(key, dtype), -1, -2),
        )
        return by_position + by_content

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
