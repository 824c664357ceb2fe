"""Biases by distance with a few learned numbers, for any length."""

from typing import Any

from keras import ops


def kerple_log(distance: Any, *, scale: Any, rate: Any) -> Any:
    """Returns -scale * log(1 + rate * distance), for each head.

    Args:
        distance: `(batch, query, key)`.
        scale: `(heads,)`, above 0.
        rate: `(heads,)`, above 0.

    Returns:
        `(batch, heads, query, key)`.

    References:
        - [Chi et al., 2022](https://arxiv.org/abs/2205.09921)
    """
    scale, rate = (ops.expand_dims(x, (1, 2)) for x in (scale, rate))
    return -scale * ops.log(1 + rate * ops.expand_dims(distance, 1))


def kerple_power(distance: Any, *, scale: Any, exponent: Any) -> Any:
    """Returns -scale * distance ** exponent, for each head.

    Args:
        distance: `(batch, query, key)`.
        scale: `(heads,)`, above 0.
        exponent: `(heads,)`, above 0 and at most 2.

    Returns:
        `(batch, heads, query, key)`.

    References:
        - [Chi et al., 2022](https://arxiv.org/abs/2205.09921)
    """
    scale, exponent = (ops.expand_dims(x, (1, 2)) for x in (scale, exponent))
    distance = ops.expand_dims(distance, 1)
    apart = distance > 0
    # Not 0: its logarithm would have no gradient, even where it is not used.
    safe = ops.where(apart, distance, ops.ones_like(distance))
    power = ops.exp(exponent * ops.log(safe))
    return -scale * ops.where(apart, power, ops.zeros_like(power))


def fire_bias(
    distance: Any,
    *,
    reach: Any,
    rate: Any,
    threshold: Any,
    hidden_kernel: Any,
    hidden_bias: Any,
    output_kernel: Any,
) -> Any:
    """Applies a small network to distances relative to the reach.

    Args:
        distance: `(batch, query, key)`.
        reach: The longest distance of each pair's query, or of the pair:
            broadcasts to the shape of `distance`. At least `threshold` of it.
        rate: Scalar above 0; distances count by log(1 + rate * distance).
        threshold: Scalar above 0.
        hidden_kernel: `(1, hidden)`.
        hidden_bias: `(hidden,)`.
        output_kernel: `(hidden, heads)`.

    Returns:
        `(batch, heads, query, key)`.

    References:
        - [Li et al., 2023](https://arxiv.org/abs/2310.04418)
    """
    reach = ops.maximum(reach, threshold)
    # The published code's 1e-6, against a division of 0 by 0.
    share = ops.log(1 + rate * distance) / (ops.log(1 + rate * reach) + 1e-6)
    # (batch, query, key) -> (batch, query, key, hidden)
    hidden = ops.relu(
        ops.expand_dims(share, -1) * hidden_kernel[0] + hidden_bias
    )
    return ops.transpose(ops.matmul(hidden, output_kernel), (0, 3, 1, 2))
