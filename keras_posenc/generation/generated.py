"""The output of every search, and what all searches share."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.cache import of_shape

# The logit, or log-likelihood, of what is impossible: below all others. Not
# -inf: LiteRT's converter replaces that by this number, and outputs would
# differ.
IMPOSSIBLE = float(np.finfo("float32").min)

# `next(prompt, cache, index) -> (logits, hidden, cache)`, the same as for
# keras-hub's samplers: logits `(batch, vocabulary)` of the token at `index`,
# from the tokens of `prompt` before it.
Next = Callable[[Any, Any, Any], tuple[Any, Any, Any]]


class Generated(NamedTuple):
    """Generated sequences with their log-likelihoods.

    For beam search, `n_best` is one more axis, after the batch.

    Attributes:
        ids: int32 `(batch, length)`: the prompt, the tokens after it up to and
            including an end symbol, then padding.
        score: float32 `(batch,)`: the log-likelihood of the tokens after the
            prompt under the unrestricted model. Beam search divides it by the
            length penalty, and gives the lowest float32, -3.4e38, where it
            found no sequence.
        token_score: float32 `(batch, length)`: the log-likelihood of each
            token; 0 for the prompt and for padding.
    """

    ids: Any
    score: Any
    token_score: Any


def log_probabilities(logits: Any) -> Any:
    """Returns logits as log-probabilities, in float32 or higher."""
    return ops.log_softmax(in_full(logits), axis=-1)


def in_full(logits: Any) -> Any:
    """Returns logits of a low dtype as float32."""
    dtype = keras.backend.standardize_dtype(logits.dtype)
    return logits if dtype == "float64" else ops.cast(logits, "float32")


def is_any(tokens: Any, ids: Sequence[int]) -> Any:
    """Returns bool of the tokens' shape: which of them are one of the ids."""
    found = ops.zeros_like(tokens, dtype="bool")
    for each in ids:
        found = ops.logical_or(found, ops.equal(tokens, each))
    return found


def with_column(buffer: Any, index: Any, values: Any) -> Any:
    """Returns `(rows, length)` with `values`, `(rows,)`, in column `index`.

    By `where`, not by an update in place: some servers and converters lack the
    operators for that.
    """
    columns = ops.arange(ops.shape(buffer)[1], dtype="int32")
    here = ops.expand_dims(ops.equal(columns, index), 0)
    values = ops.expand_dims(ops.cast(values, buffer.dtype), 1)
    return of_shape(ops.where(here, values, buffer), buffer)
