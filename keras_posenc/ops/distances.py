"""Distances between queries and keys, for any positions."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.plain_export import where_valid


def relative_positions(
    query_positions: Any, key_positions: Any, *, exact: str = "float32"
) -> Any:
    """Subtracts query from key positions, for all pairs.

    Integers are subtracted as integers, floats in float32 or higher.

    Args:
        query_positions: `(batch, query)`.
        key_positions: `(batch, key)`.
        exact: The dtype that floats are cast to at least.

    Returns:
        `(batch, query, key)`.
    """
    query_positions, key_positions = (
        _wide(positions, exact)
        for positions in (query_positions, key_positions)
    )
    return ops.subtract(
        ops.expand_dims(key_positions, -2), ops.expand_dims(query_positions, -1)
    )


def distances(
    query_positions: Any,
    key_positions: Any,
    *,
    bidirectional: bool,
    dtype: str = "float32",
) -> Any:
    """Returns distances; if one-directional, only to earlier keys.

    Args:
        query_positions: `(batch, query)`.
        key_positions: `(batch, key)`.
        bidirectional: Whether keys after the query have a distance too; else
            it is 0.
        dtype: The dtype of the result.

    Returns:
        `(batch, query, key)`, at least 0.
    """
    # Cast first: LiteRT has no absolute value of int64.
    relative = ops.cast(
        relative_positions(query_positions, key_positions, exact=dtype), dtype
    )
    if bidirectional:
        return ops.abs(relative)
    return ops.maximum(-relative, ops.zeros_like(relative))


def clipped_index(
    query_positions: Any,
    key_positions: Any,
    *,
    max_distance: int,
    exact: str = "float32",
) -> Any:
    """Turns relative positions into rows of a table of `2 * max_distance + 1`.

    Floats are subtracted in float32 or higher, and rounded down. NaN gives
    some row: see `nan_where_unknown`.

    Returns:
        int32 `(batch, query, key)`, from 0 (far before the query) to the last
        row (far after it).
    """
    relative = relative_positions(query_positions, key_positions, exact=exact)
    relative = ops.clip(relative, -max_distance, max_distance)
    whole = ops.cast(relative, "int32")
    # Clipped again, since NaN may become any integer.
    return ops.clip(whole, -max_distance, max_distance) + max_distance


def nan_where_unknown(
    x: Any, *, query_positions: Any, key_positions: Any
) -> Any:
    """Replaces `x` by NaN for pairs of tokens of which one is at NaN.

    For look-ups by `clipped_index`, and branches on the distance: without this
    they would treat NaN as a position. Integers need no operators.

    Args:
        x: `(batch, heads, query, key)`.
        query_positions: `(batch, query)`.
        key_positions: `(batch, key)`.
    """
    relative = relative_positions(query_positions, key_positions)
    if "int" in keras.backend.standardize_dtype(relative.dtype):
        return x
    known = ops.expand_dims(ops.equal(relative, relative), 1)
    return where_valid(known, x, nan=ops.cast(float("nan"), x.dtype))


def arithmetic_dtype(x: Any) -> str:
    """Returns float64 for float64, else float32, which holds positions."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    return "float64" if dtype == "float64" else "float32"


def _wide(positions: Any, exact: str) -> Any:
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if "int" not in dtype:
        return ops.cast(positions, dtype if dtype == "float64" else exact)
    # As int32, large ones would become negative.
    is_wide = dtype in ("int64", "uint32", "uint64")
    return ops.cast(positions, "int64" if is_wide else "int32")
