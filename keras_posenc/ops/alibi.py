"""Attention with linear biases."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.distances import distances


def alibi_slopes(num_heads: int, *, alibi_bias_max: float = 8.0) -> np.ndarray:
    """Returns a slope for each head: a geometric series down to 2^-maximum.

    If the number of heads is not a power of two, the slopes are those of the
    next lower power, and every other one of the next higher power.

    Returns:
        float64 `(num_heads,)`.

    References:
        - [Press et al., 2021](https://arxiv.org/abs/2108.12409)
    """
    power = 2 ** int(math.log2(num_heads))
    exponents = np.concatenate(
        [
            np.arange(1, power + 1) / power,
            np.arange(1, 2 * power, 2) / (2 * power),
        ]
    )
    return 2.0 ** (-alibi_bias_max * exponents[:num_heads])


def alibi_bias(
    query_positions: Any,
    key_positions: Any,
    *,
    slopes: np.ndarray,
    bidirectional: bool,
    dtype: str = "float32",
) -> Any:
    """Returns each head's slope times the distance.

    The graph holds only the slopes. It subtracts integer positions as
    integers, so that nothing is rounded before the product.

    Returns:
        `(batch, heads, query, key)`.
    """
    distance = distances(
        query_positions, key_positions, bidirectional=bidirectional, dtype=dtype
    )
    # (batch, 1, query, key) * (heads, 1, 1)
    return ops.expand_dims(distance, 1) * ops.convert_to_tensor(
        -slopes.reshape(-1, 1, 1), dtype=dtype
    )
