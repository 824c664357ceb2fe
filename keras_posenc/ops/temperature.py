"""Factors of queries that grow with the position: attention stays sharp."""

from typing import Any

from keras import ops


def floored_log_temperature(
    positions: Any, *, attn_scale: float, floor_scale: float, dtype: str
) -> Any:
    """Returns 1 + attn_scale * log(1 + floor((position + 1) / floor_scale)).

    Positions below 0 count as 0.

    Args:
        positions: `(batch, seq)`.
        attn_scale: The growth with the logarithm.
        floor_scale: As many positions in a row have the same factor.
        dtype: The dtype of the result.

    Returns:
        `(batch, 1, seq, 1)`.

    References:
        - Llama 4, as in Hugging Face's transformers.
    """
    count = _count(positions, dtype)
    steps = ops.floor(count / floor_scale)
    # Compilers multiply by the reciprocal, which may be one step off.
    rest = count - steps * floor_scale
    steps = steps + ops.cast(rest >= floor_scale, dtype)
    steps = steps - ops.cast(rest < 0, dtype)
    return 1 + attn_scale * ops.log(1 + steps)


def log_temperature(positions: Any, *, scale: Any, dtype: str) -> Any:
    """Returns scale * log(position + 1), for each head.

    Positions below 0 count as 0.

    Args:
        positions: `(batch, seq)`.
        scale: `(heads,)`.
        dtype: The dtype of the result.

    Returns:
        `(batch, heads, seq, 1)`.

    References:
        - [Nakanishi, 2025](https://arxiv.org/abs/2501.19399)
    """
    scale = ops.reshape(ops.cast(scale, dtype), (1, -1, 1, 1))
    return scale * ops.log(_count(positions, dtype))


def _count(positions: Any, dtype: str) -> Any:
    """Returns how many tokens there are up to each one: (batch, 1, seq, 1)."""
    positions = ops.expand_dims(ops.cast(positions, dtype), (1, 3))
    # Not a maximum: that of NaN is a number in some runtimes.
    return 1 + ops.where(positions < 0, ops.zeros_like(positions), positions)
