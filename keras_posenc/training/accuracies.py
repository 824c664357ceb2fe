"""How many tokens are right, and how many sequences are right throughout."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.named import NamedOptions
from keras_posenc.ops.reductions import largest
from keras_posenc.training._tokens import read_targets, spread


class _Accuracy(NamedOptions, keras.metrics.Mean):
    """Base: a mean that reads targets as the loss does."""

    def __init__(
        self, *, ignored_id: int = 0, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.ignored_id = ignored_id

    def _read(
        self, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[Any, Any]:
        """Whether each token is right, and what it weighs."""
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

    Every token counts alike, in whatever batch and row it is. Which are real
    is as in `TokenCrossentropy`, but that Keras's `fit` hands metrics no mask
    on JAX: there padding is what has `ignored_id` as its target.

    Args:
        ignored_id: the target id that does not count, 0 for padding.
        name: name of the metric.
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

    def __init__(
        self,
        *,
        ignored_id: int = 0,
        name: str = "token_accuracy",
        dtype: Any = None,
    ) -> None:
        super().__init__(ignored_id=ignored_id, name=name, dtype=dtype)

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        right, weights = self._read(y_true, y_pred, sample_weight)
        # Flat: Keras's mean of a matrix gives a row of a long batch less.
        super().update_state(
            ops.reshape(right, (-1,)), ops.reshape(weights, (-1,))
        )


@keras.saving.register_keras_serializable(package="keras_posenc")
class SequenceAccuracy(_Accuracy):
    """The share of rows all of whose real tokens are right.

    Of predictions made with teacher forcing that is the share of sequences that
    greedy decoding would answer exactly. Rows without a real token do not
    count; a row counts by the largest sample weight of its tokens, of which
    those of weight 0 need not be right.

    Args:
        ignored_id: the target id that does not count, 0 for padding.
        name: name of the metric.
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

    def __init__(
        self,
        *,
        ignored_id: int = 0,
        name: str = "sequence_accuracy",
        dtype: Any = None,
    ) -> None:
        super().__init__(ignored_id=ignored_id, name=name, dtype=dtype)

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        right, weights = self._read(y_true, y_pred, sample_weight)
        right = ops.all(ops.logical_or(right, weights <= 0), axis=-1)
        super().update_state(right, largest(weights, axis=-1))
