"""Biases of positions that queries count by the contents of keys."""

from typing import Any

from keras import ops

from keras_posenc.ops.attention import matmul_by_groups


def contextual_positions(query: Any, key: Any, *, mask: Any, dtype: str) -> Any:
    """Returns how many keys a query counts from each key up to itself.

    A key counts by the sigmoid of its score; one that the query cannot see does
    not count.

    Args:
        query: `(batch, heads, query, dim)`, scaled.
        key: `(batch, key_value_heads, key, dim)`.
        mask: Bool, broadcasts to `(batch, heads, query, key)`; or None.
        dtype: The dtype of the result.

    Returns:
        `(batch, heads, query, key)`.

    References:
        - [Golovneva et al., 2024](https://arxiv.org/abs/2405.18719)
    """
    scores = matmul_by_groups(
        ops.cast(query, dtype), ops.cast(key, dtype), transpose=True
    )
    gates = ops.sigmoid(scores)
    if mask is not None:
        gates = ops.where(mask, gates, ops.zeros_like(gates))
    # From the last key on, not the total minus what comes before: that would
    # round the small positions of close keys in a long text.
    return ops.flip(ops.cumsum(ops.flip(gates, axis=-1), axis=-1), axis=-1)


def interpolated_scores(scores: Any, positions: Any) -> Any:
    """Returns scores at real positions, between those of whole positions.

    Args:
        scores: `(batch, heads, query, count)`, of the positions 0, 1, ...
        positions: `(batch, heads, query, key)`, at least 0; from the last
            position on, its score.

    Returns:
        `(batch, heads, query, key)`.
    """
    last = scores.shape[-1] - 1
    positions = ops.where(
        positions > last, ops.full_like(positions, last), positions
    )
    floor = ops.floor(positions)
    # Clipped, since NaN may become any integer.
    below = ops.clip(ops.cast(floor, "int32"), 0, last)
    share = positions - floor
    low, high = (
        _taken(scores, index) for index in (below, ops.minimum(below + 1, last))
    )
    return high * share + low * (1 - share)


def _taken(scores: Any, index: Any) -> Any:
    """Returns, for each query and key, the score of an index of its own."""
    if 0 in scores.shape:  # JAX cannot take entries of an empty tensor
        return ops.zeros(ops.shape(index), scores.dtype)
    batch, heads, query, count = ops.shape(scores)
    rows = ops.arange(batch * heads * query, dtype="int32") * count
    flat = index + ops.reshape(rows, (batch, heads, query, 1))
    return ops.take(ops.reshape(scores, (-1,)), flat)
