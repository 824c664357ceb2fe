"""Which tokens of a target count, for losses and accuracies alike."""

import functools
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import check_shape


class _Mask(keras.layers.Layer):
    """The mask that a tensor carries, as Keras gives it to layers.

    Keras says so nowhere else, and where it keeps it depends on the backend.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(dtype="float32", autocast=False, **kwargs)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any, *, mask: Any = None) -> Any:
        if mask is None:
            return ops.ones(ops.shape(inputs)[:-1], "bool")
        return ops.cast(mask, "bool")


@functools.cache
def _mask_layer() -> Any:
    return _Mask(name="carried_mask")


def read_targets(
    targets: Any, predictions: Any, ignored_id: int
) -> tuple[Any, Any]:
    """The ids of targets, int32, and which of them count.

    Those count that are not `ignored_id`, and real by the mask that the
    predictions carry, if they do. What does not count has id 0 here.

    Raises:
        ValueError: if the targets are not ids of the predictions' shape but
            for the last axis.
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
    counts = ops.logical_and(counts, _mask_layer()(predictions))
    return ops.where(counts, targets, 0), counts


def spread(weights: Any, like: Any) -> Any:
    """Weights of rows, or of tokens, for each of the tokens.

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
