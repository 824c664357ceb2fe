"""What has been said is less likely to be said again."""

from typing import Any

from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE

_LOWEST = -3e38  # of numbers that float32 holds


def seen_ids(prompt: Any, vocabulary: int, *, before: Any) -> Any:
    """Which ids stand in the prompt before the column `before`.

    Args:
        prompt: Integers `(batch, length)`.
        vocabulary: The number of ids.
        before: The first column that does not count.

    Returns:
        Bool `(batch, vocabulary)`.
    """
    batch, length = ops.shape(prompt)[0], ops.shape(prompt)[1]
    counts = ops.less(ops.arange(length, dtype="int32"), before)
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
    # One row more, where all goes that does not count.
    rows = ops.where(ops.expand_dims(counts, 0), rows, batch)
    places = ops.reshape(rows * vocabulary + ops.cast(prompt, "int32"), (-1, 1))
    flat = ops.scatter_update(
        ops.zeros(((batch + 1) * vocabulary,), "int32"),
        places,
        ops.ones_like(places[:, 0]),
    )
    seen = ops.reshape(flat, (-1, vocabulary))[:-1]
    return ops.greater(seen, 0)


def penalize(logits: Any, seen: Any, penalty: float) -> Any:
    """Positive logits of seen ids divided by the penalty, others multiplied.

    Keskar et al. 2019, [CTRL](https://arxiv.org/abs/1909.05858), with the sign
    that Hugging Face minds.

    Args:
        logits: Floats `(batch, vocabulary)`.
        seen: Bool `(batch, vocabulary)`.
        penalty: Above 0; 1 changes nothing.

    Returns:
        Floats `(batch, vocabulary)`.
    """
    less = ops.where(logits > 0, logits / penalty, logits * penalty)
    # However large the penalty is, what is forbidden is less likely; and what
    # is forbidden stays so.
    less = ops.maximum(less, _LOWEST)
    return ops.where(ops.logical_and(seen, logits > IMPOSSIBLE), less, logits)
