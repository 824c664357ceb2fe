"""Losses and accuracies of tokens, without padding."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_choice, check_rate
from keras_posenc.ops.arguments import check_shape, known_values
from keras_posenc.ops.masks import resolve_mask
from keras_posenc.ops.named import NamedOptions
from keras_posenc.ops.reductions import largest


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


_MEAN = "mean_with_sample_weight"


@keras.saving.register_keras_serializable(package="keras_posenc")
class TokenCrossentropy(NamedOptions, keras.losses.Loss):
    """Cross-entropy of target ids, averaged over real tokens.

    >>> import numpy as np
    >>> from keras_posenc import training
    >>> loss = training.TokenCrossentropy(label_smoothing=0.1)
    >>> logits = np.zeros((1, 3, 4), "float32")
    >>> print(f"{float(loss(np.array([[2, 3, 0]]), logits)):.4f}")
    1.3863

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
        standard = keras.backend.standardize_dtype(dtype)
        check_choice("dtype", standard, ("float32", "float64"))
        check_choice("reduction", reduction, (_MEAN, "sum", "none", None))
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


class _Accuracy(NamedOptions, keras.metrics.Mean):
    """Base: a mean that reads targets as the loss does."""

    default_name: str

    def __init__(
        self, *, ignored_id: int = 0, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name or self.default_name, dtype=dtype)
        self.ignored_id = ignored_id

    def _read(
        self, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[Any, Any]:
        """Returns whether each token is correct, and its weight."""
        y_true = ops.convert_to_tensor(y_true)
        y_pred = ops.convert_to_tensor(y_pred)
        ids, counts = read_targets(y_true, y_pred, self.ignored_id)
        weights = ops.cast(counts, "float32")
        if sample_weight is not None:
            given = ops.convert_to_tensor(sample_weight)
            weights = weights * spread(given, counts)
        best = ops.cast(ops.argmax(y_pred, axis=-1), "int32")
        return ops.equal(best, ids), weights

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "ignored_id": self.ignored_id}


@keras.saving.register_keras_serializable(package="keras_posenc")
class TokenAccuracy(_Accuracy):
    """The share of real tokens whose largest score is that of their target.

    >>> import numpy as np
    >>> from keras_posenc import training
    >>> metric = training.TokenAccuracy()
    >>> scores = np.eye(4)[[[1, 2, 0], [3, 0, 0]]]
    >>> metric.update_state(np.array([[1, 3, 0], [3, 0, 0]]), scores)
    >>> print(f"{float(metric.result()):.4f}")
    0.6667

    All tokens have the same weight, in whatever batch and row they are. Real
    tokens are those of `TokenCrossentropy`, except on JAX, where Keras's `fit`
    gives metrics no mask: there, padding is where the target is `ignored_id`.

    Args:
        ignored_id: the target id that does not count: the model's `pad_id`.
        name: name of the metric; by default that of the class.
        dtype: dtype of its result.
    """

    default_name = "token_accuracy"

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        right, weights = self._read(y_true, y_pred, sample_weight)
        # Flat: Keras's mean of a matrix weighs rows of long batches less.
        super().update_state(
            ops.reshape(right, (-1,)), ops.reshape(weights, (-1,))
        )


@keras.saving.register_keras_serializable(package="keras_posenc")
class SequenceAccuracy(_Accuracy):
    """The share of rows in which all real tokens are correct.

    >>> import numpy as np
    >>> from keras_posenc import training
    >>> metric = training.SequenceAccuracy()
    >>> scores = np.eye(4)[[[1, 2, 0], [3, 0, 0]]]
    >>> metric.update_state(np.array([[1, 3, 0], [3, 0, 0]]), scores)
    >>> print(float(metric.result()))
    0.5

    For predictions with teacher forcing this is the share of sequences that
    greedy decoding would generate exactly. Rows without a real token do not
    count. A row has the largest sample weight of its tokens; tokens of weight 0
    need not be correct.

    Args:
        ignored_id: the target id that does not count: the model's `pad_id`.
        name: name of the metric; by default that of the class.
        dtype: dtype of its result.
    """

    default_name = "sequence_accuracy"

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        right, weights = self._read(y_true, y_pred, sample_weight)
        right = ops.all(ops.logical_or(right, weights <= 0), axis=-1)
        super().update_state(right, largest(weights, axis=-1))
