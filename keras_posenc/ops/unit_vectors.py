"""Vectors divided by their length."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.reductions import largest

# Powers of two, by which no digit changes: squares of float32 numbers within
# these limits, and their sums, are float32 numbers.
_LIMIT, _SCALE = 2.0**50, 2.0**80


def unit_vectors(vectors: Any) -> Any:
    """Returns vectors of length 1, in float32 or higher; zeros stay zeros."""
    x = ops.cast(vectors, keras.backend.result_type(vectors.dtype, "float32"))
    size = largest(ops.absolute(x), axis=-1, keepdims=True)
    scale = ops.where(size > _LIMIT, 1 / _SCALE, 1.0)
    scale = ops.where(size < 1 / _LIMIT, _SCALE, scale)
    x = x * ops.cast(scale, x.dtype)
    total = ops.sum(ops.square(x), axis=-1, keepdims=True)
    # Replaced before the root, whose gradient at 0 is infinite.
    total = ops.where(total > 0, total, ops.ones_like(total))
    return x / ops.sqrt(total)
