"""Distances between queries and keys, and tables with a row for each.

No tensor has a vector for each pair of tokens.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.reductions import sums_of_segments
from keras_posenc.ops.sinusoids import split_positions


def relative_positions(
    query_positions: Any, key_positions: Any, *, exact: str = "float32"
) -> Any:
    """Subtracts positions of queries from those of keys: (batch, query, key).

    Integers are subtracted as integers, floats in float32 or, if `exact` is
    that, in float64.
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
    """Returns distances, `(batch, query, key)`, at least 0.

    Unless they are bidirectional, those to later keys are 0.
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
    some row: see `nan_where_unknown`. int32 `(batch, query, key)`, from 0 (far
    before the query) to the last row (far after it).
    """
    relative = relative_positions(query_positions, key_positions, exact=exact)
    relative = ops.clip(relative, -max_distance, max_distance)
    whole = ops.cast(relative, "int32")
    # Clipped again, since NaN may become any integer.
    return ops.clip(whole, -max_distance, max_distance) + max_distance


def nan_where_unknown(x: Any, query_positions: Any, key_positions: Any) -> Any:
    """Replaces `(batch, heads, query, key)` by NaN where a position is NaN.

    For look-ups by `clipped_index`, and branches on the distance: without this
    they would treat NaN as a position. Integers need no operators.
    """
    relative = relative_positions(query_positions, key_positions)
    if "int" in keras.backend.standardize_dtype(relative.dtype):
        return x
    known = ops.expand_dims(ops.equal(relative, relative), 1)
    return ops.where(known, x, ops.cast(float("nan"), x.dtype))


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


def matmul_rows_of_heads(x: Any, table: Any) -> Any:
    """Multiplies `(batch, groups, seq, dim)` by `(rows, heads, dim)`.

    Each group has the same number of heads; with as many groups as heads, a
    group is a head. The result is `(batch, heads, seq, rows)`.
    """
    batch, groups, seq, dim = ops.shape(x)
    rows, heads, _ = table.shape
    each = heads // groups
    # Heads first, since a product with a broadcast batch cannot be converted:
    # (groups, batch * seq, dim) by (groups, dim, each * rows)
    table = ops.reshape(
        ops.transpose(table, (1, 2, 0)), (groups, each, dim, rows)
    )
    products = ops.matmul(
        ops.reshape(ops.transpose(x, (1, 0, 2, 3)), (groups, -1, dim)),
        ops.reshape(
            ops.transpose(table, (0, 2, 1, 3)), (groups, dim, each * rows)
        ),
    )
    products = ops.reshape(products, (groups, batch, seq, each, rows))
    # (groups, batch, seq, each, rows) -> (batch, groups, each, seq, rows)
    return ops.reshape(
        ops.transpose(products, (1, 0, 3, 2, 4)), (batch, heads, seq, rows)
    )


def take_rows_as_heads(table: Any, index: Any) -> Any:
    """Takes rows of `(rows, heads)` by `(batch, query, key)`, heads second."""
    # (batch, query, key, heads) -> (batch, heads, query, key)
    return ops.transpose(ops.take(table, index, axis=0), (0, 3, 1, 2))


def take_by_distance(scores: Any, index: Any) -> Any:
    """Returns, for each query and key, the score of their distance.

    Scores are `(batch, heads, query, rows)`; the index `(batch, query, key)`.
    """
    batch, heads, query, rows = ops.shape(scores)
    if 0 in scores.shape:  # JAX cannot take rows of an empty tensor
        keys = ops.shape(index)[2]
        return ops.zeros((batch, heads, query, keys), scores.dtype)
    # (batch, heads, query, rows) -> (batch * query * rows, heads)
    flat = ops.reshape(ops.transpose(scores, (0, 2, 3, 1)), (-1, heads))
    index = index + _first_rows(batch, query, rows)
    return take_rows_as_heads(flat, index)


def sum_by_distance(weights: Any, index: Any, *, rows: int) -> Any:
    """Sums weights, `(batch, heads, query, key)`, at each distance.

    The result is `(batch, heads, query, rows)`, for an `index` as in
    `take_by_distance`.
    """
    batch, heads, query, _ = ops.shape(weights)
    # (batch, heads, query, key) -> (batch * query * key, heads)
    flat = ops.reshape(ops.transpose(weights, (0, 2, 3, 1)), (-1, heads))
    index = index + _first_rows(batch, query, rows)
    sums = sums_of_segments(
        flat, ops.reshape(index, (-1,)), count=batch * query * rows
    )
    sums = ops.reshape(sums, (batch, query, rows, heads))
    return ops.transpose(sums, (0, 3, 1, 2))


def _first_rows(batch: Any, query: Any, rows: int) -> Any:
    """Returns the first row of each query: int32 (batch, query, 1)."""
    first = ops.arange(batch * query, dtype="int32") * rows
    return ops.reshape(first, (batch, query, 1))


def rows_at(table: Any, positions: Any, *, mask: Any = None) -> Any:
    """Returns rows of a table by position; NaN for a token outside it.

    A runtime that reads beyond a table fails, wraps around, or returns whatever
    memory is there. Here nothing is read beyond the table, and a token without
    a row cannot be mistaken for one with a row: a masked one takes the nearest
    row, any other one NaN.
    """
    length = table.shape[0]
    whole, _, valid = split_positions(positions)
    row = ops.clip(whole, 0, length - 1)
    valid = ops.logical_and(valid, ops.equal(row, whole))
    rows = ops.take(table, row, axis=0)
    if mask is not None:
        valid = ops.logical_or(valid, ops.logical_not(mask))
    valid = ops.expand_dims(valid, -1)
    return ops.where(valid, rows, ops.cast(float("nan"), rows.dtype))


def resized_table(table: np.ndarray, length: int) -> np.ndarray:
    """Resizes `(rows, width)` to `length` rows by linear interpolation.

    The first and the last row stay, so positions near the ends of a sequence
    keep what they learned, and the rest is spread evenly. float64.
    """
    rows = table.shape[0]
    place = np.linspace(0, rows - 1, length)
    below = np.minimum(place.astype("int64"), max(rows - 2, 0))
    share = (place - below)[:, np.newaxis]
    wide = table.astype("float64")
    above = np.minimum(below + 1, rows - 1)
    return wide[below] * (1 - share) + wide[above] * share
