"""Tables by relative position, without a (query, key, dim) tensor."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.reductions import sums_of_segments


def bucket_table(
    num_buckets: int, *, max_distance: int, bidirectional: bool
) -> np.ndarray:
    """Returns T5's bucket of each relative position (key minus query).

    Half of the buckets hold one distance each, the other half ranges that
    grow geometrically up to `max_distance`. With `bidirectional`, the upper
    half of all buckets is for later keys.

    Returns:
        int32 `(2 * max_distance + 1,)`, from `-max_distance` on.

    References:
        - [Raffel et al., 2019](https://arxiv.org/abs/1910.10683)
    """
    relative = np.arange(-max_distance, max_distance + 1)
    if bidirectional:
        num_buckets //= 2
        offset = np.where(relative > 0, num_buckets, 0)
        distance = np.abs(relative)
    else:
        offset = np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
    exact = num_buckets // 2
    # In float32, as published, since distances may lie exactly between two
    # buckets. The logarithm is rounded once, so all machines agree.
    ratio = np.maximum(distance, exact).astype("float32") / np.float32(exact)
    logarithm = np.log(ratio.astype("float64")).astype("float32")
    share = logarithm / np.float32(math.log(max_distance / exact))
    far = exact + (share * np.float32(num_buckets - exact)).astype("int64")
    far = np.minimum(far, num_buckets - 1)
    return (offset + np.where(distance < exact, distance, far)).astype("int32")


def log_bucket_table(num_buckets: int, *, max_distance: int) -> np.ndarray:
    """Returns DeBERTa's bucket of each relative position (key minus query).

    Up to half of the buckets of a side hold one distance each, the others
    ranges that grow geometrically up to `max_distance`; beyond it all
    positions share the last bucket.

    Returns:
        int32 `(2 * max_distance + 1,)`, from `-max_distance` on: in
        `[0, 2 * num_buckets)`.

    References:
        - [He et al., 2020](https://arxiv.org/abs/2006.03654)
    """
    # The paper's relative position is query minus key.
    relative = -np.arange(-max_distance, max_distance + 1)
    exact = num_buckets // 2
    distance = np.maximum(np.abs(relative), exact).astype("float64")
    share = np.log(distance / exact) / math.log((max_distance - 1) / exact)
    # Rounded up, as published; without rounding errors of whole numbers.
    far = exact + np.ceil((share * (exact - 1)).astype("float32"))
    bucket = np.where(
        np.abs(relative) <= exact, relative, np.sign(relative) * far
    )
    index = np.clip(bucket + num_buckets, 0, 2 * num_buckets - 1)
    return index.astype("int32")


def matmul_rows_of_heads(x: Any, table: Any) -> Any:
    """Multiplies `(batch, groups, seq, dim)` by `(rows, heads, dim)`.

    Each group has the same number of heads; with as many groups as heads, a
    group is a head.

    Returns:
        `(batch, heads, seq, rows)`.
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

    Args:
        scores: `(batch, heads, query, rows)`, by row of a table of distances.
        index: The rows, `(batch, query, key)` or `(1, query, key)`.

    Returns:
        `(batch, heads, query, key)`.
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
    """Returns, for each query, the sum of the weights at each distance.

    Args:
        weights: `(batch, heads, query, key)`.
        index: The rows, `(batch, query, key)` or `(1, query, key)`.
        rows: How many there are.

    Returns:
        `(batch, heads, query, rows)`.
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
