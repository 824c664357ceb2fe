"""The repetition penalty."""

from typing import Any

from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE

_LOWEST = -3e38  # about the lowest float32


def seen_ids(prompt: Any, vocabulary: int, *, before: Any) -> Any:
    """Returns which ids the prompt has before the column `before`.

    Args:
        prompt: Integers `(batch, length)`; negative ones are padding.
        vocabulary: The number of ids.
        before: The first column that is not read.

    Returns:
        Bool `(batch, vocabulary)`.
    """
    counts = ops.less(ops.arange(ops.shape(prompt)[1], dtype="int32"), before)
    return marked_ids(prompt, vocabulary, where=ops.expand_dims(counts, 0))


def marked_ids(prompt: Any, vocabulary: int, *, where: Any) -> Any:
    """Returns which ids the prompt has in some of its places.

    Args:
        prompt: Integers `(batch, length)`; negative ones are padding.
        vocabulary: The number of ids.
        where: Bool `(batch, length)`, or `(1, length)`: the places.

    Returns:
        Bool `(batch, vocabulary)`.
    """
    batch = ops.shape(prompt)[0]
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
    # One more row, for the columns that are not read, and padding.
    prompt = ops.cast(prompt, "int32")
    rows = ops.where(ops.logical_and(where, prompt >= 0), rows, batch)
    places = rows * vocabulary + ops.maximum(prompt, 0)
    places = ops.reshape(places, (-1, 1))
    flat = ops.scatter_update(
        ops.zeros(((batch + 1) * vocabulary,), "int32"),
        places,
        ops.ones_like(places[:, 0]),
    )
    seen = ops.reshape(flat, (-1, vocabulary))[:-1]
    return ops.greater(seen, 0)


def penalize(logits: Any, seen: Any, penalty: Any) -> Any:
    """Divides positive logits of seen ids by the penalty; multiplies others.

    Keskar et al. 2019, [CTRL](https://arxiv.org/abs/1909.05858), with Hugging
    Face's handling of the sign.

    Args:
        logits: Floats `(batch, vocabulary)`.
        seen: Bool `(batch, vocabulary)`.
        penalty: Above 0, a number or a tensor; 1 changes nothing.

    Returns:
        Floats `(batch, vocabulary)`.
    """
    less = ops.where(logits > 0, logits / penalty, logits * penalty)
    # Clipped: forbidden ids must remain the least likely, however large the
    # penalty is.
    less = ops.maximum(less, _LOWEST)
    return ops.where(ops.logical_and(seen, logits > IMPOSSIBLE), less, logits)
