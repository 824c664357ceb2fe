"""The size of logits, which their rounding and that of likelihoods grow by."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.search import vocabulary_of

_NAMES = ("logits", "score", "token_score")
_PROBE = 4  # tokens, which any table of positions is large enough for


def sizes_of(
    model: keras.Model, outputs: Callable[[], Mapping[str, Any]] = dict
) -> dict[str, float]:
    """Returns how large numbers are that outputs are computed from, by name.

    The logits of a token are products of one vector with all embeddings, and
    rounding moves each of them by as much as the largest, however small it is
    itself. A log-likelihood is a difference of logits, which moves as far as
    they do. Exports are verified relative to this size.

    Args:
        model: A model of logits, which is run: its weights may change.
        outputs: Returns further outputs, such as the keys and values of a
            token, which are products of one vector too.
    """
    ids = np.arange(1, 1 + _PROBE, dtype="int32")[np.newaxis]
    inputs = ids = ids % model.vocabulary_size
    if hasattr(model, "encode"):
        inputs = {"source": ids, "target": ids % vocabulary_of(model)}
    sizes = dict.fromkeys(_NAMES, _largest(model(inputs)))
    for name, value in outputs().items():
        if name not in sizes and keras.backend.is_float_dtype(value.dtype):
            sizes[name] = _largest(value)
    return sizes


def _largest(x: Any) -> float:
    size = ops.max(ops.absolute(ops.cast(x, "float32")))
    return max(1.0, float(ops.convert_to_numpy(size)))
