"""The Keras layers that attention and blocks are made of."""

import math
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import is_compiled_by_xla
from keras_posenc.ops.attention import swap_heads
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.initializers import initializer_of
from keras_posenc.transformer.specs import Norm

PARTS = 4  # of a kernel that XLA multiplies with one row


def make_dense(
    owner: Any,
    units: int,
    name: str,
    activation: Any = None,
    *,
    use_bias: bool | None = None,
) -> keras.layers.Dense:
    """Makes a projection with the options of its owner."""
    return keras.layers.Dense(
        units,
        activation=activation,
        use_bias=owner.use_bias if use_bias is None else use_bias,
        kernel_initializer=initializer_of(owner.kernel_initializer, name),
        bias_initializer=initializer_of(owner.bias_initializer, name),
        kernel_regularizer=owner.kernel_regularizer,
        bias_regularizer=owner.bias_regularizer,
        dtype=owner.dtype_policy,
        name=name,
    )


def project(dense: keras.layers.Dense, x: Any, outer: Any = None) -> Any:
    """Applies `dense` to rows of two axes: (..., dim) -> (*outer, units).

    Given more axes, Keras on TensorFlow makes a dozen small operators.
    """
    if outer is None:
        outer = outer_sizes(x)
    rows = ops.reshape(x, (-1, x.shape[-1]))
    if _is_bound_by_reading(dense, rows):
        projected = _project_in_parts(dense, rows)
    else:
        projected = dense(rows)
    return ops.reshape(projected, (*outer, dense.units))


def _is_bound_by_reading(dense: keras.layers.Dense, rows: Any) -> bool:
    """Returns whether there is one row, which XLA would compute on one core."""
    return (
        rows.shape[0] == 1
        and rows.shape[1] % PARTS == 0
        and keras.backend.standardize_dtype(rows.dtype) == "float32"
        and dense.compute_dtype == "float32"
        and dense.quantization_mode is None
        and is_compiled_by_xla(rows)
    )


def _project_in_parts(dense: keras.layers.Dense, row: Any) -> Any:
    """Computes `dense(row)` as a sum of products, on several cores with XLA."""
    kernel = ops.reshape(dense.kernel, (PARTS, -1, dense.units))
    x = ops.matmul(ops.reshape(row, (PARTS, 1, -1)), kernel)
    x = ops.sum(x, axis=0)
    if dense.bias is not None:
        x = ops.add(x, dense.bias)
    return x if dense.activation is None else dense.activation(x)


def make_norm(norm: Norm, dtype: Any, name: str) -> keras.Layer:
    """Makes a normalization over the features of each token."""
    is_rms = norm.kind == "rms"
    kind = keras.layers.RMSNormalization if is_rms else _LayerNormalization
    layer = kind(epsilon=norm.epsilon, dtype=dtype, name=name)
    # Keras's RMSNormalization works token by token, but does not declare it.
    layer.supports_masking = True
    return layer


def normalized_heads(norm: keras.Layer | None, x: Any) -> Any:
    """Applies a norm of each head or of all: (batch, heads, seq, head_dim)."""
    _, heads, _, head_dim = x.shape
    if norm is None or norm.scale.shape[0] == head_dim:
        return normalized(norm, x)
    x = swap_heads(x)
    outer = outer_sizes(x)[:2]
    x = norm(ops.reshape(x, (*outer, heads * head_dim)))
    return swap_heads(ops.reshape(x, (*outer, heads, head_dim)))


def normalized(norm: keras.Layer | None, x: Any) -> Any:
    """Applies a norm, if there is one."""
    return x if norm is None else norm(x)


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="LayerNormalization"
)
class _LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer, over the last axis, with fewer passes over the tokens."""

    def call(self, inputs: Any) -> Any:
        if keras.config.backend() == "torch":  # it has a kernel for this
            return super().call(inputs)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        x, gamma, beta = (
            ops.cast(tensor, dtype)
            for tensor in (inputs, self.gamma, self.beta)
        )
        centered = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
        outputs = centered * (ops.rsqrt(variance + self.epsilon) * gamma) + beta
        return ops.cast(outputs, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_posenc")
def gelu_tanh(x: Any) -> Any:
    """Computes GELU by its approximation with a hyperbolic tangent."""
    if keras.backend.standardize_dtype(x.dtype) == "float64":
        # TensorFlow rounds its constant to float32.
        inner = (2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1.0 + ops.tanh(inner))
    return keras.activations.gelu(x, approximate=True)


def make_activation(activation: Any) -> Any:
    """Returns an activation by name, Keras's or `gelu_tanh`, or a callable."""
    if activation == "gelu_tanh":
        return gelu_tanh
    try:
        return keras.activations.get(activation)
    except (ValueError, TypeError) as error:
        raise ValueError(
            "`activation` must be the name of a Keras activation, such as "
            "'relu' or 'gelu', or a callable. "
            f"Received: activation={activation!r}"
        ) from error
