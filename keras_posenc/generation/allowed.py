"""Processors of logits: penalties, forbidden tokens and forced ends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.generation.decoding import Decoding
from keras_posenc.generation.generated import IMPOSSIBLE, in_full

_LOWEST = -3e38  # about the lowest float32


class Allowed:
    """Makes impossible what may not be the next token.

    In the order of transformers: the penalty of repetition, ids that are never
    generated and ends that come too early, repeated parts, and a forced end.

    Args:
        decoding: The options.
        pad_id: The id of padding, which is never generated.
        ids: Other ids that are never generated.
    """

    def __init__(
        self, decoding: Decoding, pad_id: int = 0, ids: Sequence[int] = ()
    ) -> None:
        self.decoding = decoding
        self.never = (pad_id, *ids)
        # Of a `TransformersDecoding`.
        self.ngram_size = getattr(decoding, "no_repeat_ngram_size", 0)
        self.forced_end_id = getattr(decoding, "forced_end_id", None)

    def __call__(
        self,
        logits: Any,
        *,
        prompt: Any,
        index: Any,
        start: Any,
        penalty: Any = None,
    ) -> Any:
        """Returns logits `(batch, vocabulary)` to choose the next token by.

        The prompt, integers `(batch, length)`, is filled before `index`, and
        generated from `start` on. `penalty` is a tensor in place of the penalty
        of repetition, for one graph of all penalties except 1.
        """
        logits = in_full(logits)
        vocabulary = logits.shape[-1]
        if self.decoding.repetition_penalty != 1:
            if penalty is None:
                penalty = self.decoding.repetition_penalty
            seen = seen_ids(prompt, vocabulary, before=index)
            logits = penalize(logits, seen, penalty)
        logits = self.forbid(logits, index - start)
        impossible = ops.cast(IMPOSSIBLE, logits.dtype)
        if self.ngram_size:
            repeats = self._repeats(prompt, vocabulary, index)
            logits = ops.where(repeats, impossible, logits)
        if self.forced_end_id is not None:
            is_it = _are(vocabulary, [self.forced_end_id])
            forced = ops.where(is_it, ops.zeros_like(impossible), impossible)
            is_last = ops.equal(index, ops.shape(prompt)[1] - 1)
            logits = ops.where(is_last, ops.expand_dims(forced, 0), logits)
        return logits

    def forbid(self, logits: Any, count: Any) -> Any:
        """Makes impossible what is so in any text, after `count` tokens."""
        forbidden = _are(logits.shape[-1], self.never)
        least, end_ids = self.decoding.least, self.decoding.end_ids
        if least > 0 and end_ids:
            early = ops.less(count, least)
            ends = ops.logical_and(_are(logits.shape[-1], end_ids), early)
            forbidden = ops.logical_or(forbidden, ends)
        return ops.where(
            ops.expand_dims(forbidden, 0),
            ops.cast(IMPOSSIBLE, logits.dtype),
            logits,
        )

    def _repeats(self, prompt: Any, vocabulary: int, index: Any) -> Any:
        """Returns bool `(rows, vocabulary)`: which ids would repeat a part."""
        more = self.ngram_size - 1
        if not more:
            return seen_ids(prompt, vocabulary, before=index)
        length = ops.shape(prompt)[1]
        columns = ops.arange(length, dtype="int32")
        # Of each column: whether the tokens before it are the last ones.
        same = ops.logical_and(columns >= more, columns < index)
        same = ops.expand_dims(same, 0)
        for back in range(1, more + 1):
            last = ops.take(prompt, ops.maximum(index - back, 0), axis=1)
            before = ops.pad(prompt, ((0, 0), (back, 0)))[:, :length]
            same = ops.logical_and(
                same, ops.equal(before, ops.expand_dims(last, 1))
            )
        return marked_ids(prompt, vocabulary, where=same)


def _are(vocabulary: int, ids: Sequence[int]) -> Any:
    """Returns bool `(vocabulary,)`: which ids are one of these."""
    return ops.convert_to_tensor(np.isin(np.arange(vocabulary), ids))


def seen_ids(prompt: Any, vocabulary: int, *, before: Any) -> Any:
    """Returns which ids a prompt, `(batch, length)`, has before a column.

    Bool `(batch, vocabulary)`; negative ids are padding.
    """
    counts = ops.less(ops.arange(ops.shape(prompt)[1], dtype="int32"), before)
    return marked_ids(prompt, vocabulary, where=ops.expand_dims(counts, 0))


def marked_ids(prompt: Any, vocabulary: int, *, where: Any) -> Any:
    """Returns which ids a prompt has in the places `where`, as `seen_ids`."""
    batch = ops.shape(prompt)[0]
    rows = ops.expand_dims(ops.arange(batch, dtype="int32"), 1)
    # One more row, for the columns that are not read, and padding.
    prompt = ops.cast(prompt, "int32")
    rows = ops.where(ops.logical_and(where, prompt >= 0), rows, batch)
    places = rows * vocabulary + ops.maximum(prompt, 0)
    places = ops.reshape(places, (-1, 1))
    flat = ops.scatter_update(
        ops.zeros(((batch + 1) * vocabulary,), "int32"),
        places,
        ops.ones_like(places[:, 0]),
    )
    seen = ops.reshape(flat, (-1, vocabulary))[:-1]
    return ops.greater(seen, 0)


def penalize(logits: Any, seen: Any, penalty: Any) -> Any:
    """Divides positive logits of seen ids by the penalty; multiplies others.

    Keskar et al. 2019, [CTRL](https://arxiv.org/abs/1909.05858), with Hugging
    Face's handling of the sign. Logits, and bool `seen`, are `(batch,
    vocabulary)`.
    """
    less = ops.where(logits > 0, logits / penalty, logits * penalty)
    # Clipped: forbidden ids must remain the least likely, however large the
    # penalty is.
    less = ops.maximum(less, _LOWEST)
    return ops.where(ops.logical_and(seen, logits > IMPOSSIBLE), less, logits)
