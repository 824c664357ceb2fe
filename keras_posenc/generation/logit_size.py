"""The size of logits, which their rounding and that of likelihoods grow by."""

from collections.abc import Callable, ItemsView, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.search import vocabulary_of

_NAMES = ("logits", "score", "token_score")
_PROBE = 4  # tokens, which any table of positions is large enough for


class LogitSize(Mapping[str, float]):
    """The size of logits, by the names of outputs that they are computed to.

    The logits of a token are products of one vector with all embeddings, and
    rounding moves each of them by as much as the largest, however small it is
    itself. A log-likelihood is a difference of logits, which moves as far as
    they do. Exports are verified relative to this size.

    Args:
        model: A model of logits. It is run for each look-up: its weights may
            change.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model

    def __getitem__(self, name: str) -> float:
        if name not in _NAMES:
            raise KeyError(name)
        ids = np.arange(1, 1 + _PROBE, dtype="int32")[np.newaxis]
        ids = ids % self._model.vocabulary_size
        inputs = ids
        if hasattr(self._model, "encode"):
            inputs = {"source": ids, "target": ids % vocabulary_of(self._model)}
        logits = ops.convert_to_numpy(ops.cast(self._model(inputs), "float32"))
        return max(1.0, float(np.max(np.abs(logits))))

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


class StateSize(Mapping[str, float]):
    """The size of logits, and of the keys and values that a step returns.

    Those of a token are products of one vector too: see `LogitSize`.

    Args:
        model: As for `LogitSize`.
        outputs: Returns outputs of the step, by their names.
    """

    def __init__(
        self, model: keras.Model, outputs: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._logits = LogitSize(model)
        self._outputs = outputs

    def items(self) -> ItemsView[str, float]:
        sizes = dict(self._logits)
        for name, value in self._outputs().items():
            numbers = ops.convert_to_numpy(value)
            if name not in sizes and np.issubdtype(numbers.dtype, np.floating):
                sizes[name] = max(1.0, float(np.max(np.abs(numbers))))
        return sizes.items()  # all of one run

    def __getitem__(self, name: str) -> float:
        return dict(self.items())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.items()))

    def __len__(self) -> int:
        return len(self.items())
