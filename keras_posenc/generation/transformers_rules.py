"""The rules of the library transformers for which tokens may follow."""

from typing import Any

import numpy as np
from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE
from keras_posenc.generation.repetition import marked_ids, seen_ids


class Rules:
    """Makes tokens impossible that would repeat, and ends at the last column.

    Args:
        no_repeat_ngram_size: A sequence has no part of this many tokens twice,
            its prompt included; 0 for any.
        forced_end_id: The token in the last column, or None for any.
    """

    def __init__(
        self, no_repeat_ngram_size: int = 0, forced_end_id: int | None = None
    ) -> None:
        self.no_repeat_ngram_size = no_repeat_ngram_size
        self.forced_end_id = forced_end_id

    def __bool__(self) -> bool:
        return self.no_repeat_ngram_size > 0 or self.forced_end_id is not None

    def __call__(self, scores: Any, prompt: Any, index: Any) -> Any:
        """Returns the scores of the tokens that may be in a column.

        Args:
            scores: Floats `(rows, vocabulary)`.
            prompt: Integers `(rows, length)`; the columns before `index` are
                filled.
            index: The column.

        Returns:
            Floats `(rows, vocabulary)`. That of a forced token is 0.
        """
        impossible = ops.cast(IMPOSSIBLE, scores.dtype)
        vocabulary = scores.shape[-1]
        if self.no_repeat_ngram_size:
            repeats = self._repeats(prompt, vocabulary, index)
            scores = ops.where(repeats, impossible, scores)
        if self.forced_end_id is not None:
            is_it = ops.convert_to_tensor(
                np.arange(vocabulary) == self.forced_end_id
            )
            forced = ops.where(is_it, ops.zeros_like(impossible), impossible)
            is_last = ops.equal(index, ops.shape(prompt)[1] - 1)
            scores = ops.where(is_last, ops.expand_dims(forced, 0), scores)
        return scores

    def _repeats(self, prompt: Any, vocabulary: int, index: Any) -> Any:
        """Returns bool `(rows, vocabulary)`: which ids would repeat a part."""
        more = self.no_repeat_ngram_size - 1
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
