"""The shares of correct tokens and of correct sequences."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.named import NamedOptions
from keras_posenc.ops.reductions import largest
from keras_posenc.training._tokens import read_targets, spread


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

    All tokens have the same weight, in whatever batch and row they are. Real
    tokens are those of `TokenCrossentropy`, except on JAX, where Keras's `fit`
    gives metrics no mask: there, padding is where the target is `ignored_id`.

    Args:
        ignored_id: the target id that does not count: the model's `pad_id`.
        name: name of the metric; by default that of the class.
        dtype: dtype of its result.

    Example:
        >>> import numpy as np
        >>> from keras_posenc import training
        >>> metric = training.TokenAccuracy()
        >>> scores = np.eye(4)[[[1, 2, 0], [3, 0, 0]]]
        >>> metric.update_state(np.array([[1, 3, 0], [3, 0, 0]]), scores)
        >>> print(f"{float(metric.result()):.4f}")
        0.6667
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

    For predictions with teacher forcing this is the share of sequences that
    greedy decoding would generate exactly. Rows without a real token do not
    count. A row has the largest sample weight of its tokens; tokens of weight 0
    need not be correct.

    Args:
        ignored_id: the target id that does not count: the model's `pad_id`.
        name: name of the metric; by default that of the class.
        dtype: dtype of its result.

    Example:
        >>> import numpy as np
        >>> from keras_posenc import training
        >>> metric = training.SequenceAccuracy()
        >>> scores = np.eye(4)[[[1, 2, 0], [3, 0, 0]]]
        >>> metric.update_state(np.array([[1, 3, 0], [3, 0, 0]]), scores)
        >>> print(float(metric.result()))
        0.5
    """

    default_name = "sequence_accuracy"

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        right, weights = self._read(y_true, y_pred, sample_weight)
        right = ops.all(ops.logical_or(right, weights <= 0), axis=-1)
        super().update_state(right, largest(weights, axis=-1))
