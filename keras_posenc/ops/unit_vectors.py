"""Vectors divided by their length."""

from typing import Any

import keras
from keras import ops


def unit_vectors(vectors: Any) -> Any:
    """Returns vectors of length 1, in float32 or higher; zeros stay zeros.

    Args:
        vectors: Float tensor of shape `(..., dim)`.

    Returns:
        The same shape.
    """
    x = ops.cast(vectors, keras.backend.result_type(vectors.dtype, "float32"))
    total = ops.sum(ops.square(x), axis=-1, keepdims=True)
    # Replaced before the root, whose gradient at 0 is infinite.
    total = ops.where(total > 0, total, ops.ones_like(total))
    return x / ops.sqrt(total)
