"""How far keys stand from queries, whatever their positions are."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.plain_export import where_valid


def relative_positions(
    query_positions: Any, key_positions: Any, *, exact: str = "float32"
) -> Any:
    """Key minus query: `(batch, query)` and `(batch, key)` -> all pairs.

    Integers are subtracted as integers, reals in the exact dtype at least.

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
    """How far apart; one-directional, how far the key is before the query.

    Args:
        query_positions: `(batch, query)`.
        key_positions: `(batch, key)`.
        bidirectional: Whether keys behind the query have a distance as well;
            else it is 0.
        dtype: The dtype of the answer.

    Returns:
        `(batch, query, key)`, not negative.
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
    """Relative positions as rows of a table of `2 * max_distance + 1` rows.

    Real ones count by the whole part of their difference, which is taken in
    the exact dtype at least. NaN is a row too, any one: see
    `nan_where_unknown`.

    Returns:
        int32 `(batch, query, key)`, from 0 (far before) to the last row (far
        behind).
    """
    relative = relative_positions(query_positions, key_positions, exact=exact)
    relative = ops.clip(relative, -max_distance, max_distance)
    whole = ops.cast(relative, "int32")
    # Again, since NaN may become any integer.
    return ops.clip(whole, -max_distance, max_distance) + max_distance


def nan_where_unknown(
    x: Any, *, query_positions: Any, key_positions: Any
) -> Any:
    """NaN for pairs of tokens of which one stands at NaN, `x` for others.

    For what is looked up by `clipped_index`, or branches on the distance,
    where NaN would pass for one. Integers cost nothing.

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
    """float64 for float64, else float32, in which positions survive."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    return "float64" if dtype == "float64" else "float32"


def _wide(positions: Any, exact: str) -> Any:
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if "int" not in dtype:
        return ops.cast(positions, dtype if dtype == "float64" else exact)
    # int32 would make large ones negative.
    is_wide = dtype in ("int64", "uint32", "uint64")
    return ops.cast(positions, "int64" if is_wide else "int32")
