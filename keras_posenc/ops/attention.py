"""Scaled dot-product attention, with grouped heads, masks and biases."""

import math
from typing import Any

import keras
from keras import ops

# What a query without any key scores all keys by. Small enough for float16,
# also in files whose constants a converter rounds to float16.
_SCORE_OF_ALL = -3e4

# What a bias may lower a score to: finite, in float32 and so in any sum of it.
_LOWEST = -3e38

_FUSED_DTYPES = ("float32", "bfloat16", "float16")

# More scores than these (256 MB of float32) are not held at once, but those of
# so many queries at a time.
MAX_SCORES = 2**26
BLOCK = 256
TYPICAL_BATCH = 8
# Gradients hold several arrays as large as the scores of a block: of large
# batches it has fewer queries, for 64 MB of float32, but not ever fewer.
TRAINED_SCORES = 2**24
FEWEST_TRAINED = 64
# Blocks of windows begin where each has half of the keys at most.
FEWER = 2

# Of one query and at most so many numbers in its keys, TensorFlow's threads
# take longer to begin with a product or a softmax than these to be made of
# simpler operators.
FEW = 2**17


def attention_weights(
    query: Any, key: Any, *, mask: Any = None, bias: Any = None
) -> Any:
    """Softmax of the scores, `(batch, heads, query, key)`.

    A masked key weighs 0 whatever it scores, as long as it is a number. A
    query that may attend to nothing attends to everything equally (except
    scores below -30000): finite, whatever the mask.

    Args:
        query: `(batch, heads, query, dim)`, already scaled.
        key: `(batch, key_value_heads, key, dim)`, where `key_value_heads`
            divides `heads`.
        mask: Bool, broadcasts to `(batch, heads, query, key)`.
        bias: Added to the scores; broadcasts likewise.

    Returns:
        Weights in the dtype of `query`.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Ainslie et al., 2023](https://arxiv.org/abs/2305.13245) (grouped)
    """
    dtype = query.dtype
    is_small = _is_small(query, key)
    if is_small:
        scores = ops.expand_dims(ops.sum(query * key, axis=-1), 2)
    else:
        scores = matmul_by_groups(query, ops.swapaxes(key, -1, -2))
    # A softmax over many keys in bfloat16 would lose what sums it up.
    if keras.backend.standardize_dtype(dtype) != "float64":
        scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    if bias is not None and mask is not None:
        # A bias of -inf on all keys that a mask allows would leave none.
        scores = ops.maximum(scores, _LOWEST)
    if mask is not None:
        # No number is low enough for every model: a masked key scores -inf,
        # except for a query without any, whose softmax would be NaN.
        any_key = ops.any(mask, axis=-1, keepdims=True)
        masked = ops.where(any_key, float("-inf"), _SCORE_OF_ALL)
        # As `where(mask, scores, masked)`, but all blocks of a model share
        # the small tensor, and mobile runtimes are fast at a minimum.
        most = ops.where(mask, float("inf"), masked)
        scores = ops.minimum(scores, ops.cast(most, scores.dtype))
    if scores.shape[-1] == 1:  # about which Keras's softmax warns
        return ops.ones_like(scores, dtype=dtype)
    if is_small:
        scores = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        weights = scores / ops.sum(scores, axis=-1, keepdims=True)
    else:
        weights = ops.softmax(scores, axis=-1)
    return ops.cast(weights, dtype)


def weighted_values(weights: Any, value: Any) -> Any:
    """`(batch, heads, query, key)` weights of `(batch, kv heads, key, dim)`."""
    if _is_small(weights, value):
        weights = ops.expand_dims(ops.squeeze(weights, 2), -1)
        return ops.sum(weights * value, axis=2, keepdims=True)
    return matmul_by_groups(weights, value)


def _is_small(x: Any, y: Any) -> bool:
    """Whether a query, or its weights, and keys or values are soon summed."""
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
    """`weighted_values(attention_weights(...), value)`, the weights unseen.

    As one operation where the backend has one that is as exact.
    """
    dtype = keras.backend.standardize_dtype(query.dtype)
    # TensorFlow has none. Grouped keys would be repeated, a bias rounded to
    # the dtype of the queries, and float64 computed as float32.
    if (
        keras.config.backend() in ("jax", "torch")
        and query.shape[1] == key.shape[1]
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
        bias = None  # of all scores alike, which the softmax takes out
    any_key = None
    if mask is not None:
        # Of queries without a key each backend makes something else.
        any_key = ops.any(mask, axis=-1, keepdims=True)
        mask = ops.logical_or(mask, ops.logical_not(any_key))
        if bias is not None:  # PyTorch takes one of the two
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
    """Attends a block of queries at a time where the scores would be large.

    The softmax of a query needs its own scores alone, so that each block is
    exact, and memory grows with the length instead of its square.

    Args:
        shape: That of the queries, `(batch, heads, query, dim)`.
        keys: How many keys there are.
        window: How far apart a query and its keys are at most, where there is
            one of each in every place: others are left out. None for any
            distance.
        dtype: That of the queries.
        is_trained: Whether gradients are asked for. The choice is then made
            while the graph is, for gradients of a choice cost more than it
            saves: in a batch of any size as in one of `TYPICAL_BATCH`, in
            texts of any length all at once.
        is_compiled: Whether XLA compiles it.
        all_at_once: Attends for all queries: no argument.
        some: Attends for some: their indices, integers `(rows,)`, and those of
            the keys among which all of theirs are, or None for all keys.

    Returns:
        `(batch, heads, query, dim)`.
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
            # Of more rows than there are, the last goes on behind the end,
            # where no gradient comes from.
            block = some(ops.minimum(index, seq - 1), columns(start))
            # (batch, heads, rows, dim) -> (rows, batch, heads, dim)
            block = ops.transpose(block, (2, 0, 1, 3))
            indices = ops.expand_dims(index, -1)
            return start + size, ops.scatter_update(whole, indices, block)

        _, whole = ops.while_loop(
            lambda start, _: start < seq,
            step,
            (0, ops.zeros((seq + size, batch, heads, dim), dtype)),
            # XLA makes room for gradients of a known number of steps only.
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
        # Whose sizes are constants: of a switch XLA compiles what they choose
        # alone, of a condition both, and blocks of nothing it refuses.
        index = ops.cast(is_large, "int32")
        return ops.switch(index, [all_at_once, by_blocks])
    return ops.cond(is_large, by_blocks, all_at_once)


def leaves_out(near: Any, keys: Any) -> Any:
    """Whether a block's keys are so few of all that blocks take less time."""
    return keys >= FEWER * near


def swap_heads(x: Any) -> Any:
    """(batch, seq, heads, dim) -> (batch, heads, seq, dim), or back."""
    _, outer, inner, dim = x.shape
    if 1 in (outer, inner) and not {0, None} & {outer, inner}:
        # Of one token nothing moves.
        return ops.reshape(x, (-1, inner, outer, dim))
    if keras.config.backend() == "tensorflow":
        # On a CPU, TensorFlow plans each of its transposes anew, which takes
        # a short text longer than the transpose itself. Converters make a
        # transpose of this.
        return ops.einsum("bshd->bhsd", x)
    return ops.transpose(x, (0, 2, 1, 3))


def matmul_by_groups(x: Any, y: Any) -> Any:
    """Matrix products where each head of `y` serves a group of heads of `x`.

    (batch, heads, m, k) by (batch, heads / group, k, n) -> (batch, heads, m,
    n). The heads of a group lie one after another, so that a group is one
    taller matrix, and no key or value is repeated.
    """
    heads, key_value_heads = x.shape[1], y.shape[1]
    if heads == key_value_heads:
        return ops.matmul(x, y)
    batch, _, m, k = ops.shape(x)
    n = ops.shape(y)[-1]
    group = heads // key_value_heads
    tall = ops.reshape(x, (batch, key_value_heads, group * m, k))
    return ops.reshape(ops.matmul(tall, y), (batch, heads, m, n))
