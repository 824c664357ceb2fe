"""Cross-entropy of tokens, with label smoothing, without padding."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_rate
from keras_posenc.ops.arguments import known_values
from keras_posenc.ops.named import NamedOptions
from keras_posenc.training._tokens import read_targets, spread

_MEAN = "mean_with_sample_weight"
_DTYPES = ("float32", "float64")


@keras.saving.register_keras_serializable(package="keras_posenc")
class TokenCrossentropy(NamedOptions, keras.losses.Loss):
    """Cross-entropy of target ids, averaged over real tokens.

    A token counts unless its target is `ignored_id`, or it is padding by the
    mask that the predictions carry. Other predictions, NaN included, affect
    neither the loss nor a gradient. With smoothing e over V ids, the target is
    1 - e + e / V at its id and e / V at each other, as in Keras's
    `CategoricalCrossentropy`, but without an array of V numbers.

    Args:
        label_smoothing: e, in [0, 1); the paper uses 0.1.
        from_logits: whether predictions are logits; else they are
            probabilities.
        ignored_id: the target id that does not count: the model's `pad_id`.
        reduction: "mean_with_sample_weight", the mean over real tokens, by
            sample weights if there are any; "sum"; or None, for one number for
            each token, 0 where it does not count.
        name: name of the loss.
        dtype: dtype of its computations, "float32" or "float64". Lower ones
            hold neither large ids nor the loss of a token.

    Call arguments:
        y_true: integer ids of shape (batch, seq), in [0, V) where they count,
            and nowhere below 0 unless that is `ignored_id`. Others raise
            `ValueError` if their values are known, and else give a loss of NaN.
        y_pred: logits, or probabilities, of shape (batch, seq, V).
        sample_weight: of shape (batch,) or (batch, seq).

    Raises:
        ValueError: if an argument is invalid, or the shapes do not fit.

    Example:
        >>> import numpy as np
        >>> from keras_posenc import training
        >>> loss = training.TokenCrossentropy(label_smoothing=0.1)
        >>> logits = np.zeros((1, 3, 4), "float32")
        >>> print(f"{float(loss(np.array([[2, 3, 0]]), logits)):.4f}")
        1.3863

    References:
        - Szegedy et al. 2015, [Rethinking the Inception Architecture](
          https://arxiv.org/abs/1512.00567), section 7
    """

    def __init__(
        self,
        *,
        label_smoothing: float = 0.0,
        from_logits: bool = True,
        ignored_id: int = 0,
        reduction: str | None = _MEAN,
        name: str = "token_crossentropy",
        dtype: Any = "float32",
    ) -> None:
        if keras.backend.standardize_dtype(dtype) not in _DTYPES:
            raise ValueError(
                "`dtype` must be 'float32' or 'float64', whatever that of the "
                f"predictions. Received: dtype={dtype!r}"
            )
        if reduction not in (_MEAN, "sum", "none", None):
            raise ValueError(
                f"`reduction` must be {_MEAN!r}, 'sum' or None, since padding "
                f"does not count. Received: reduction={reduction!r}"
            )
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)
        self.from_logits = check_bool("from_logits", from_logits)
        self.ignored_id = ignored_id

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        y_true = ops.convert_to_tensor(y_true)
        y_pred = ops.convert_to_tensor(y_pred)
        _, counts = read_targets(y_true, y_pred, self.ignored_id)
        # Padding of another number, as of `TeacherForcing(pad_id=-1)`: a mask
        # hides it, while `ignored_id` drops real tokens from the loss.
        padding = ops.logical_and(y_true < 0, y_true != self.ignored_id)
        _check_ids(y_true, counts, padding, y_pred.shape[-1])
        weights = ops.cast(counts, self.dtype)
        if sample_weight is not None:
            given = ops.convert_to_tensor(sample_weight)
            weights = weights * ops.cast(spread(given, counts), self.dtype)
        # In all weights: XLA makes 0 of NaN at places that are masked.
        weights = ops.where(ops.any(padding), float("nan"), weights)
        y_true = ops.where(counts, y_true, self.ignored_id)
        return super().__call__(y_true, y_pred, sample_weight=weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        ids, counts = read_targets(y_true, y_pred, self.ignored_id)
        # Replaced before any computation: 0 times NaN is NaN.
        y_pred = ops.where(ops.expand_dims(counts, -1), y_pred, 1.0)
        if not self.from_logits:
            # Keras's own bound; the normalization below corrects the sum.
            epsilon = keras.config.epsilon()
            y_pred = ops.log(ops.clip(y_pred, epsilon, 1.0))
        size = y_pred.shape[-1]
        nearest = ops.clip(ids, 0, size - 1)
        at_target = _at(nearest, y_pred)
        rate = self.label_smoothing
        expected = (1.0 - rate) * at_target
        if rate:
            expected = expected + rate * ops.mean(y_pred, axis=-1)
        losses = ops.logsumexp(y_pred, axis=-1) - expected
        # Clipped: beyond an array each backend reads something else.
        losses = ops.where(ops.equal(ids, nearest), losses, float("nan"))
        return ops.where(counts, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "from_logits": self.from_logits,
            "ignored_id": self.ignored_id,
            "dtype": self.dtype,
        }


def _at(ids: Any, numbers: Any) -> Any:
    """Returns one number for each id: (batch, seq) of (batch, seq, V)."""
    if keras.config.backend() != "tensorflow":
        ids = ops.expand_dims(ids, -1)
        return ops.squeeze(ops.take_along_axis(numbers, ids, axis=-1), -1)
    import tensorflow as tf

    # The gradient of Keras's `take_along_axis` sums as many segments as there
    # are numbers, which takes longer than that of a softmax.
    flat = ops.reshape(ids, (-1,))
    index = ops.stack([ops.arange(ops.size(flat), dtype="int32"), flat], 1)
    rows = ops.reshape(numbers, (-1, numbers.shape[-1]))
    return ops.reshape(tf.gather_nd(rows, index), ops.shape(ids))


def _check_ids(targets: Any, counts: Any, padding: Any, size: int) -> None:
    """Raises `ValueError` for known ids outside [0, size)."""
    ids, real = known_values(targets), known_values(counts)
    hidden = known_values(padding)
    if ids is None or real is None or hidden is None:
        return
    wrong = ids[hidden | (real & (ids >= size))]
    if wrong.size:
        hint = (
            f". If it is padding, as of TeacherForcing(pad_id={wrong[0]}), "
            f"give ignored_id={wrong[0]} to the loss and the metrics"
        )
        raise ValueError(
            f"`y_true` must be ids in [0, {size}), as many as `y_pred` has, or "
            f"`ignored_id`. Received: {wrong[0]}{hint if wrong[0] < 0 else ''}"
        )
