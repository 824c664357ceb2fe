"""What another run of the same search has found, or says so."""

from typing import Any

from keras import ops

from keras_posenc.generation.generated import IMPOSSIBLE
from keras_posenc.ops.reductions import largest


class Claim:
    """Sequences by which a search decides its ties.

    Where choices are all but equal, rounding decides. To tell whether others,
    such as an exported file, may have found some sequences, the search is run
    again, and theirs are given preference by no more than a tolerance, at each
    choice anew. What it finds is theirs then, or they are wrong. Scores are
    never touched.

    Args:
        ids: Integers `(batch, length)`, or `(batch, n_best, length)`: the
            sequences behind the prompts, whatever they may be.
        tolerance: A scalar: of logits in a greedy search, of probabilities
            where tokens are drawn; with beams, of ranks, relative to the best
            where that is beyond 1. Of several sequences the first is preferred
            most, since their order, too, may be a tie. From 1e6 on all choices
            are taken as they are.
        offset: In which column of the search's buffer they begin.
    """

    def __init__(self, ids: Any, tolerance: Any, offset: Any) -> None:
        ids = ops.cast(ids, "int32")
        if len(ids.shape) == 2:
            ids = ops.expand_dims(ids, 1)
        self.ids = ids  # (batch, n, length)
        self.tolerance = ops.cast(tolerance, "float32")
        self.offset = offset
        self.is_forced = self.tolerance >= 1e6

    def tokens(self, index: Any) -> Any:
        """Those of the first sequence in this column, `(batch,)`."""
        return ops.take(self.ids[:, 0], index - self.offset, axis=1)

    def favored(self, logits: Any, index: Any) -> Any:
        """Logits `(batch, vocabulary)` of the token in this column."""
        is_claimed = _one_hot(self.tokens(index), logits.shape[-1])
        possible = logits > IMPOSSIBLE
        # However far apart logits are.
        more = ops.where(self.is_forced, float("inf"), self.tolerance)
        return ops.where(
            ops.logical_and(is_claimed, possible),
            logits + ops.cast(more, logits.dtype),
            logits,
        )

    def favored_beams(self, ranks: Any, prompt: Any, index: Any) -> Any:
        """Ranks `(batch, beams, vocabulary)` of what may follow the beams.

        Args:
            ranks: The ranks.
            prompt: Integers `(batch * beams, columns)`, of which those before
                `index` are filled.
            index: The column that is filled next.
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
        follows = ops.expand_dims(_one_hot(tokens, vocabulary), 1)
        follows = ops.logical_and(ops.expand_dims(same, -1), follows)
        shares = (count - ops.arange(count, dtype="float32")) / count
        share = largest(
            ops.where(follows, ops.expand_dims(shares, -1), 0.0), axis=2
        )  # (batch, beams, vocabulary)
        best = largest(ranks, axis=(1, 2), keepdims=True)
        more = self.tolerance * share * ops.maximum(ops.abs(best), 1.0)
        return ops.where(ranks > IMPOSSIBLE, ranks + more, ranks)


def _one_hot(tokens: Any, vocabulary: int) -> Any:
    """Bool `(..., vocabulary)`; False throughout for what is no id."""
    ids = ops.arange(vocabulary, dtype="int32")
    return ops.equal(ops.expand_dims(tokens, -1), ids)
