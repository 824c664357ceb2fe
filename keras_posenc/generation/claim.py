"""Deciding near-ties of a search as another run of it did."""

from typing import Any

from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE
from keras_posenc.ops.reductions import largest


class Claim:
    """Sequences that a search prefers where its choices are nearly equal.

    Where two choices are nearly equal, rounding decides. To find out whether
    sequences of another run, such as that of an exported file, are right, the
    search is run again and prefers theirs, at each choice by no more than a
    tolerance. If it finds the same sequences, they are right. Scores are not
    changed.

    Args:
        ids: Integers `(batch, length)`, or `(batch, n_best, length)`: the
            sequences after the prompts, with any values.
        tolerance: A scalar: of logits in a greedy search, of probabilities in
            sampling; with beams, of scores, relative to the best one where
            that is above 1. Of several sequences the first is preferred most,
            since their order may be a tie too.
        offset: The column of the search's buffer where they start.
    """

    def __init__(self, ids: Any, tolerance: Any, offset: Any) -> None:
        ids = ops.cast(ids, "int32")
        if len(ids.shape) == 2:
            ids = ops.expand_dims(ids, 1)
        self.ids = ids  # (batch, n, length)
        self.tolerance = ops.cast(tolerance, "float32")
        self.offset = offset

    def tokens(self, index: Any) -> Any:
        """Returns the tokens of the first sequence in a column, `(batch,)`."""
        return ops.take(self.ids[:, 0], index - self.offset, axis=1)

    def favored(self, logits: Any, index: Any) -> Any:
        """Returns logits `(batch, vocabulary)` that prefer the token."""
        is_claimed = _one_hot(self.tokens(index), logits.shape[-1])
        possible = logits > IMPOSSIBLE
        return ops.where(
            ops.logical_and(is_claimed, possible),
            logits + ops.cast(self.tolerance, logits.dtype),
            logits,
        )

    def favored_beams(self, ranks: Any, prompt: Any, index: Any) -> Any:
        """Returns scores `(batch, beams, vocabulary)` that prefer the tokens.

        Of the prompt, `(batch * beams, columns)`, those before `index` are
        filled.
        """
        _, beams, vocabulary = ranks.shape
        count, length = self.ids.shape[1], self.ids.shape[2]
        # (batch, 1, n, length) with (batch, beams, 1, length)
        begun = ops.reshape(prompt[:, -length:], (-1, beams, 1, length))
        same = ops.equal(ops.expand_dims(self.ids, 1), begun)
        columns = ops.arange(length, dtype="int32") + self.offset
        same = ops.all(
            ops.logical_or(same, columns >= index), axis=-1
        )  # (batch, beams, n)
        tokens = ops.take(self.ids, index - self.offset, axis=2)  # (batch, n)
        # Where padding is no id, a beam that has ended continues with id 0.
        tokens = ops.maximum(tokens, 0)
        follows = ops.expand_dims(_one_hot(tokens, vocabulary), 1)
        follows = ops.logical_and(ops.expand_dims(same, -1), follows)
        shares = (count - ops.arange(count, dtype="float32")) / count
        share = largest(
            ops.where(follows, ops.expand_dims(shares, -1), 0.0), axis=2
        )  # (batch, beams, vocabulary)
        best = largest(ranks, axis=(1, 2), keepdims=True)
        more = self.tolerance * share * ops.maximum(ops.abs(best), 1.0)
        return ops.where(ranks > IMPOSSIBLE, ranks + more, ranks)

    def favored_sequences(self, ranks: Any, ids: Any) -> Any:
        """Returns scores `(batch, count)` that prefer these sequences."""
        count, length = self.ids.shape[1], self.ids.shape[2]
        ids = ops.expand_dims(ids[:, :, -length:], 2)
        same = ops.all(ops.equal(ids, ops.expand_dims(self.ids, 1)), axis=-1)
        shares = (count - ops.arange(count, dtype="float32")) / count
        share = largest(ops.where(same, shares, 0.0), axis=2)
        best = largest(ranks, axis=1, keepdims=True)
        return ranks + self.tolerance * share * ops.maximum(ops.abs(best), 1.0)


def _one_hot(tokens: Any, vocabulary: int) -> Any:
    """Returns bool `(..., vocabulary)`: all False where a token is no id."""
    ids = ops.arange(vocabulary, dtype="int32")
    return ops.equal(ops.expand_dims(tokens, -1), ids)
