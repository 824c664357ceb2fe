"""Scaled dot-product attention, with grouped heads, masks and biases."""

import math
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import matmul_transposed

# The score of all keys for a query that may attend to none. Within float16's
# range, since converters may round constants to float16.
_SCORE_OF_ALL = -3e4

# The least score after a bias: finite, also when scores are added to it.
_LOWEST = -3e38

_FUSED_DTYPES = ("float32", "bfloat16", "float16")

# At most this many scores (256 MB of float32) are in memory at once; if there
# are more, only those of this number of queries at a time.
MAX_SCORES = 2**26
BLOCK = 256
TYPICAL_BATCH = 8
# Gradients need several arrays as large as the scores of a block. So for large
# batches a block has fewer queries, for 64 MB of float32, but at least these.
TRAINED_SCORES = 2**24
FEWEST_TRAINED = 64
# With windows, blocks are used where a block has at most half of the keys.
FEWER = 2

# For one query, and keys of at most this many numbers, starting TensorFlow's
# threads for a product or a softmax takes longer than computing it with
# simpler operators.
FEW = 2**17


def attention_weights(
    query: Any, key: Any, *, mask: Any = None, bias: Any = None
) -> Any:
    """Returns the softmax of the scores, `(batch, heads, query, key)`.

    A masked key has weight 0 whatever its score, unless that is NaN. A query
    that may attend to nothing attends to all keys equally (except scores below
    -30000), so weights are finite for any mask.

    Args:
        query: `(batch, heads, query, dim)`, already scaled.
        key: `(batch, key_value_heads, key, dim)`, where `key_value_heads`
            divides `heads`.
        mask: Bool, broadcasts to `(batch, heads, query, key)`.
        bias: Added to the scores; broadcasts to the same shape.
    """
    dtype = query.dtype
    is_small = _is_small(query, key)
    if is_small:
        scores = ops.expand_dims(ops.sum(query * key, axis=-1), 2)
    else:
        scores = matmul_by_groups(query, key, transpose=True)
    # In float32: a sum over many keys in bfloat16 would be inexact.
    if keras.backend.standardize_dtype(dtype) != "float64":
        scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if bias is not None and mask is not None:
        # Clipped: if all unmasked keys had a bias of -inf, none would be left.
        scores = ops.maximum(scores, _LOWEST)
    if mask is not None:
        # A masked key scores -inf, since no finite number is low enough for
        # every model; except for queries without any key: they would be NaN.
        any_key = ops.any(mask, axis=-1, keepdims=True)
        masked = ops.where(any_key, float("-inf"), _SCORE_OF_ALL)
        # Equal to `where(mask, scores, masked)`. But all blocks of a model
        # share the small tensor, and mobile runtimes are fast at a minimum.
        most = ops.where(mask, float("inf"), masked)
        scores = ops.minimum(scores, ops.cast(most, scores.dtype))
    if scores.shape[-1] == 1:  # Keras's softmax would warn
        return ops.ones_like(scores, dtype=dtype)
    if is_small:
        scores = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        weights = scores / ops.sum(scores, axis=-1, keepdims=True)
    else:
        weights = ops.softmax(scores, axis=-1)
    return ops.cast(weights, dtype)


def weighted_values(weights: Any, value: Any) -> Any:
    """Returns `(batch, heads, query, dim)`, of values of fewer heads."""
    if _is_small(weights, value):
        weights = ops.expand_dims(ops.squeeze(weights, 2), -1)
        return ops.sum(weights * value, axis=2, keepdims=True)
    return matmul_by_groups(weights, value)


def _is_small(x: Any, y: Any) -> bool:
    size = math.prod(y.shape) if None not in y.shape else FEW + 1
    return (
        keras.config.backend() == "tensorflow"
        and x.shape[1:3] == (y.shape[1], 1)
        and 0 < size <= FEW
        and keras.backend.standardize_dtype(x.dtype) == "float32"
    )


def attend(
    query: Any, key: Any, value: Any, *, mask: Any = None, bias: Any = None
) -> Any:
    """Returns attention outputs, without the weights.

    One fused operation where the backend has one that is as accurate; else
    `weighted_values(attention_weights(...), value)`.
    """
    dtype = keras.backend.standardize_dtype(query.dtype)
    # TensorFlow has none. The fused ones would repeat grouped keys, round a
    # bias to the dtype of the queries, and compute float64 in float32; JAX's
    # takes no keys of another width than the values.
    if (
        keras.config.backend() in ("jax", "torch")
        and query.shape[1] == key.shape[1]
        and key.shape[-1] == value.shape[-1]
        and dtype in (("float32",) if bias is not None else _FUSED_DTYPES)
    ):
        return _attend_fused(query, key, value, mask, bias)
    return weighted_values(
        attention_weights(query, key, mask=mask, bias=bias), value
    )


def _attend_fused(
    query: Any, key: Any, value: Any, mask: Any, bias: Any
) -> Any:
    if bias is not None and len(bias.shape) == 0:
        bias = None  # a constant, which does not change a softmax
    any_key = None
    if mask is not None:
        # Backends differ for queries without any key: see the end.
        any_key = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(any_key))
        if bias is not None:  # PyTorch takes only one of the two
            bias = ops.maximum(ops.cast(bias, "float32"), _LOWEST)
            bias = ops.where(mask, bias, float("-inf"))
            mask = None
    # (batch, heads, seq, dim) -> (batch, seq, heads, dim) and back
    attended = ops.swapaxes(
        ops.dot_product_attention(
            *(ops.swapaxes(x, 1, 2) for x in (query, key, value)),
            bias=None if bias is None else ops.cast(bias, query.dtype),
            mask=mask,
            scale=1.0,
        ),
        1,
        2,
    )
    if any_key is None:
        return attended
    average = ops.mean(value, axis=2, keepdims=True)
    return ops.where(any_key, attended, average)


def in_blocks(
    shape: Any,
    *,
    keys: Any,
    window: int | None = None,
    dtype: Any,
    is_trained: bool = False,
    is_compiled: bool = False,
    all_at_once: Any,
    some: Any,
) -> Any:
    """Attends a block of queries at a time where there are many scores.

    The softmax of a query needs only its own scores. So blocks change no
    output, and memory grows with the length instead of its square.

    Args:
        shape: Shape of the outputs, `(batch, heads, query, dim)`.
        keys: How many keys there are.
        window: The largest distance between a query and its keys, if both
            count the same tokens: other keys are skipped. None for no limit.
        dtype: Dtype of the queries.
        is_trained: Whether gradients are needed. Then the choice is made while
            the graph is traced, since gradients of a condition cost more than
            blocks save: a dynamic batch counts as one of `TYPICAL_BATCH`, and
            texts of dynamic length are attended to all at once.
        is_compiled: Whether XLA compiles it.
        all_at_once: Attends for all queries.
        some: Attends for the queries `(rows,)`, and for the keys that include
            theirs, or None for all keys.
    """
    batch, heads, seq, dim = shape
    size = BLOCK
    if is_trained and window is None and isinstance(keys, int):
        row = (batch if isinstance(batch, int) else TYPICAL_BATCH) * heads
        most = TRAINED_SCORES // max(row * keys, 1)
        size = min(BLOCK, max(FEWEST_TRAINED, most))
    near = keys  # how many keys a block has
    if window is not None:
        near = BLOCK + 2 * window
        near = (
            min(near, keys)
            if isinstance(keys, int)
            else ops.minimum(near, keys)
        )

    def columns(start: Any) -> Any:
        if window is None:
            return None
        first = ops.clip(start - window, 0, keys - near)
        return first + ops.arange(near, dtype="int32")

    def by_blocks() -> Any:
        def step(start: Any, whole: Any) -> tuple[Any, Any]:
            index = start + ops.arange(size, dtype="int32")
            # Beyond the last query it repeats that one. Those rows are cut
            # off at the end, and get no gradients.
            block = some(ops.minimum(index, seq - 1), columns(start))
            # (batch, heads, rows, dim) -> (rows, batch, heads, dim)
            block = ops.transpose(block, (2, 0, 1, 3))
            indices = ops.expand_dims(index, -1)
            return start + size, ops.scatter_update(whole, indices, block)

        _, whole = ops.while_loop(
            lambda start, _: start < seq,
            step,
            (
                ops.zeros((), "int32"),  # also outside graphs
                ops.zeros((seq + size, batch, heads, dim), dtype),
            ),
            # XLA needs a limit of steps, to reserve memory for gradients.
            maximum_iterations=(seq + size - 1) // size,
        )
        return ops.transpose(whole[:seq], (1, 2, 0, 3))

    if keras.config.backend() != "tensorflow":
        return all_at_once()
    if isinstance(seq, int) and seq <= BLOCK:
        return all_at_once()
    rows = batch * heads * seq
    if is_trained:
        if not (isinstance(seq, int) and isinstance(keys, int)):
            return all_at_once()
        if not isinstance(batch, int):
            rows = TYPICAL_BATCH * heads * seq
    if isinstance(rows, int) and isinstance(keys, int):
        is_large = rows > MAX_SCORES // max(keys, 1) or leaves_out(near, keys)
        return by_blocks() if is_large else all_at_once()
    is_large = rows > MAX_SCORES // ops.maximum(keys, 1)
    if window is not None:
        is_large = ops.logical_or(is_large, leaves_out(near, keys))
        is_large = ops.logical_and(is_large, rows > 0)
    if is_compiled:
        # With constant sizes: of a switch XLA compiles only the branch taken,
        # of a condition both, and it fails for blocks of size 0.
        index = ops.cast(is_large, "int32")
        return ops.switch(index, [all_at_once, by_blocks])
    return ops.cond(is_large, by_blocks, all_at_once)


def leaves_out(near: Any, keys: Any) -> Any:
    """Returns whether blocks skip so many keys that they take less time."""
    return keys >= FEWER * near


def swap_heads(x: Any) -> Any:
    """Swaps (batch, seq, heads, dim) and (batch, heads, seq, dim)."""
    _, outer, inner, dim = x.shape
    if 1 in (outer, inner) and not {0, None} & {outer, inner}:
        # With one token or head, a reshape is enough.
        return ops.reshape(x, (-1, inner, outer, dim))
    if keras.config.backend() == "tensorflow":
        # On a CPU, TensorFlow plans each of its transposes again, which for a
        # short text takes longer than the transpose. Converters turn this one
        # into a transpose.
        return ops.einsum("bshd->bhsd", x)
    return ops.transpose(x, (0, 2, 1, 3))


def matmul_by_groups(x: Any, y: Any, *, transpose: bool = False) -> Any:
    """Multiplies matrices, each head of `y` with a group of heads of `x`.

    (batch, heads, m, k) by (batch, heads / group, k, n), or transposed
    (..., n, k), -> (batch, heads, m, n). The heads of a group are adjacent, so
    that a group is one taller matrix, and no key or value is repeated.
    """
    heads, key_value_heads = x.shape[1], y.shape[1]
    # In a graph of dynamic shapes TensorFlow does not see that a product can
    # read transposed keys as they are, and would copy all of them at each step.
    is_step = keras.config.backend() == "tensorflow" and x.shape[2] == 1
    matmul = matmul_transposed if transpose and is_step else ops.matmul
    if transpose and not is_step:
        y = ops.swapaxes(y, -1, -2)
    if heads == key_value_heads:
        return matmul(x, y)
    batch, _, m, k = ops.shape(x)
    n = ops.shape(y)[-2 if matmul is matmul_transposed else -1]
    group = heads // key_value_heads
    tall = matmul(ops.reshape(x, (batch, key_value_heads, group * m, k)), y)
    return ops.reshape(tall, (batch, heads, m, n))
