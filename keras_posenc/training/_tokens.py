"""Masks of the target tokens that losses and accuracies count."""

from typing import Any

from keras import ops

from keras_posenc.ops.arguments import check_shape
from keras_posenc.ops.masks import resolve_mask


def read_targets(
    targets: Any, predictions: Any, ignored_id: int
) -> tuple[Any, Any]:
    """Returns the ids of targets, int32, and which of them count.

    Those count that are not `ignored_id`, and that are real by the mask of the
    predictions, if there is one. Others have id 0 in the result.

    Raises:
        ValueError: if the targets are not ids of the predictions' shape
            without its last axis.
    """
    shape = tuple(predictions.shape)
    fits = len(targets.shape) == len(shape) - 1 >= 1 and all(
        None in (size, known) or size == known
        for size, known in zip(targets.shape, shape[:-1], strict=True)
    )
    if not fits:
        raise ValueError(
            "Targets must be ids of shape (batch, seq), and predictions have "
            "one more axis, the vocabulary. Received: targets of shape "
            f"{tuple(targets.shape)}, predictions of shape {shape}"
        )
    targets = ops.cast(targets, "int32")
    counts = ops.not_equal(targets, ignored_id)
    mask = resolve_mask(None, predictions)
    if mask is not None:
        counts = ops.logical_and(counts, mask)
    return ops.where(counts, targets, 0), counts


def spread(weights: Any, like: Any) -> Any:
    """Broadcasts weights of rows, or of tokens, to all tokens.

    Raises:
        ValueError: Weights of another shape.
    """
    weights = ops.cast(weights, "float32")
    batch, seq = like.shape
    sizes = {"batch": batch, "seq": seq, "1": 1}
    row, tokens = ("batch",), ("batch", "seq")
    check_shape(
        "sample_weight", weights, (), row, ("batch", "1"), tokens, sizes=sizes
    )
    while len(weights.shape) < len(like.shape):
        weights = ops.expand_dims(weights, -1)
    return weights
