"""The output of every search, and the prompts and numbers of all searches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.cache import of_shape
from keras_posenc.ops.reductions import largest, smallest

# The logit, or log-likelihood, of what is impossible: below all others. Not
# -inf: LiteRT's converter replaces that by this number, and outputs would
# differ.
IMPOSSIBLE = float(np.finfo("float32").min)

# `next(prompt, cache, index) -> (logits, hidden, cache)`, the same as for
# keras-hub's samplers: logits `(batch, vocabulary)` of the token at `index`,
# from the tokens of `prompt` before it.
Next = Callable[[Any, Any, Any], tuple[Any, Any, Any]]


class Generated(NamedTuple):
    """Generated sequences with their log-likelihoods, as `Search` returns them.

    The prompt comes first. A search with beams gives a score of -3.4e38 where
    it found no sequence.
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

    Not by an update in place, for which some converters lack operators.
    """
    columns = ops.arange(ops.shape(buffer)[1], dtype="int32")
    here = ops.expand_dims(ops.equal(columns, index), 0)
    values = ops.expand_dims(ops.cast(values, buffer.dtype), 1)
    return of_shape(ops.where(here, values, buffer), buffer)


def refusable(ids: Any, vocabulary: int, pad_id: int) -> Any:
    """Returns int32 ids; negative ones, which Keras would read, too large."""
    ids = ops.cast(ids, "int32")
    return ops.where(ids < min(pad_id, 0), vocabulary, ids)


def align_right(
    prompt: Any,
    *,
    start_id: int | None = None,
    end_ids: Sequence[int] = (),
    pad_id: int = 0,
    front: int | None = None,
) -> Any:
    """Pads prompts, `(batch, length)`, in front: all end in the last column.

    Prompts may have any lengths, and padding anywhere. The result has at least
    two columns, so that there is always one to read before the last; if the
    length is dynamic, two columns of padding are added in front, or `front`.
    End symbols at the end, which tokenizers append, are removed: the prompt
    continues. A prompt without tokens becomes the start symbol, if any.
    """
    length = prompt.shape[1]
    if front is None:
        front = max(2 - length, 0) if isinstance(length, int) else 2
    prompt = ops.cast(prompt, "int32")
    prompt = ops.pad(prompt, ((0, 0), (front, 0)), constant_values=pad_id)
    columns = _columns(prompt)
    prompt = _shift_right(prompt, columns, pad_id)
    last = columns == ops.shape(prompt)[1] - 1  # (1, length)
    ended = ops.logical_and(last, is_any(prompt, end_ids))
    prompt = _shift_right(ops.where(ended, pad_id, prompt), columns, pad_id)
    if start_id is None:
        return prompt
    empty = ops.logical_and(last, ops.equal(prompt, pad_id))
    return ops.where(empty, start_id, prompt)


def align_left(ids: Any, pad_id: int) -> Any:
    """Moves the padding of rows, which may be anywhere, after their tokens."""
    columns, length = _columns(ids), ops.shape(ids)[1]
    places = ops.where(ops.not_equal(ids, pad_id), columns, length)
    source = columns + smallest(places, axis=1, keepdims=True)
    source = ops.where(source >= length, source - length, source)
    return ops.take_along_axis(ids, source, axis=1)


def _columns(ids: Any) -> Any:
    """Returns 0, 1, 2 ... of shape (1, length), for ids (batch, length)."""
    return ops.expand_dims(ops.arange(ops.shape(ids)[1], dtype="int32"), 0)


def _shift_right(prompt: Any, columns: Any, pad_id: int) -> Any:
    """Moves the padding after the tokens to before them."""
    real = ops.where(ops.not_equal(prompt, pad_id), columns + 1, 0)
    length = ops.shape(prompt)[1]
    padding = length - largest(real, axis=1, keepdims=True)  # (batch, 1)
    source = columns - padding
    source = ops.where(source < 0, source + length, source)
    return ops.take_along_axis(prompt, source, axis=1)
