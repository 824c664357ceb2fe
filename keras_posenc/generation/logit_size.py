"""The size of logits, which their rounding and that of likelihoods grow by."""

from collections.abc import Iterator, Mapping

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
