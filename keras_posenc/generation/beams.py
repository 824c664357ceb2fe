"""Beam search, by its paper and by the rules of the library transformers."""

from typing import Any

from keras import ops

from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    Generated,
    is_any,
    log_probabilities,
    with_column,
)
from keras_posenc.generation.loop import Chosen, Greedy, Room
from keras_posenc.ops.reductions import largest, smallest

# What transformers adds to scores that must not be chosen. With its own number
# ties are its own too.
_OUT = -1e9


class Beams(Greedy):
    """The `beams` best partial sequences of each prompt.

    Ranked by their log-likelihood divided by ((5 + n) / 6) ** length_penalty,
    with n the tokens after the prompt, the end symbol included. One that has
    ended keeps its score, and stays as long as no other is better. The search
    ends when no open beam can still exceed the best that have ended.

    References:
        - Wu et al. 2016, [Google's Neural Machine Translation System](
          https://arxiv.org/abs/1609.08144): the length penalty
    """

    def divided(self, totals: Any, count: Any) -> Any:
        """Returns log-likelihoods as ranks, for sequences of `count` tokens."""
        length = (5.0 + ops.cast(count, "float32")) / 6.0
        return totals / ops.power(length, self.decoding.length_penalty)

    def read(self, logits: Any, logs: Any) -> Any:
        # Scores that are kept from step to step are float32.
        return ops.cast(logs, "float32")

    def begin(self, prompt: Any, room: Room) -> Any:
        shape = room.batch, self.decoding.beams
        return (
            self.alone(room, IMPOSSIBLE),
            ops.zeros(shape, "int32"),
            ops.zeros(shape, "bool"),
        )

    def goes_on(self, state: Any, room: Room) -> Any:
        totals, counts, ended = state  # the best first
        # An open beam's score only falls, but its penalty may become milder.
        reach = self.divided(totals, room.length - room.start)
        reach = largest(ops.where(ended, IMPOSSIBLE, reach), axis=1)
        worst = ops.where(ended, self.divided(totals, counts), IMPOSSIBLE)
        worst = smallest(worst[:, : self.decoding.n_best], axis=1)
        return ops.any(ops.less(worst, reach))

    def choose(
        self, scores: Any, logs: Any, text: Any, index: Any, room: Room
    ) -> Chosen:
        _, _, (totals, counts, ended) = text
        gains = self.by_beam(scores, room)
        # A beam that has ended continues with padding, at no cost: in the
        # place of id 0 if padding is no id of the vocabulary.
        ids = ops.arange(gains.shape[-1], dtype="int32")
        free = ops.where(ops.equal(ids, max(self.pad_id, 0)), 0.0, IMPOSSIBLE)
        free = ops.cast(ops.reshape(free, (1, 1, -1)), "float32")
        gains = ops.where(ops.expand_dims(ended, 2), free, gains)
        totals = ops.expand_dims(totals, 2) + gains
        counts = counts + ops.cast(ops.logical_not(ended), "int32")
        ranks = self.divided(totals, ops.expand_dims(counts, 2))
        parents, tokens, (ranks, totals, gained) = self.best(
            room, ranks, self.decoding.beams, ranks, totals, gains
        )
        counts, was_ended = (
            ops.take_along_axis(x, parents, axis=1) for x in (counts, ended)
        )
        if self.pad_id < 0:
            tokens = ops.where(was_ended, self.pad_id, tokens)
        ended = ops.logical_or(was_ended, is_any(tokens, self.decoding.end_ids))
        return Chosen(
            ops.reshape(tokens, (-1,)),
            ops.reshape(gained, (-1,)),
            (totals, counts, ended),
            self.rows(parents, room),
        )

    def end(self, text: Any, room: Room) -> Any:
        ids, scores, (totals, counts, _) = text
        ids, scores = (self.by_beam(x, room) for x in (ids, scores))
        ranks = self.divided(totals, counts)
        # False for NaN, which a broken model gives.
        return self.listed(ids, scores, ranks, totals > IMPOSSIBLE, room)

    def alone(self, room: Room, out: float) -> Any:
        """Returns scores of beams that are equal at first: only one counts."""
        first = ops.equal(ops.arange(self.decoding.beams, dtype="int32"), 0)
        scores = ops.expand_dims(ops.where(first, 0.0, out), 0)
        shape = room.batch, self.decoding.beams
        return ops.cast(ops.broadcast_to(scores, shape), "float32")

    def by_beam(self, x: Any, room: Room, count: int | None = None) -> Any:
        """Reshapes (batch * count, ...) to (batch, count, ...)."""
        shape = room.size, count or self.decoding.beams, *ops.shape(x)[1:]
        return ops.reshape(x, shape)

    def rows(self, parents: Any, room: Room) -> Any:
        """Returns the rows of beams, `(batch, any)`: `(batch * any,)`."""
        first = ops.arange(room.batch, dtype="int32") * self.decoding.beams
        return ops.reshape(ops.expand_dims(first, 1) + parents, (-1,))

    def best(
        self, room: Room, ranks: Any, count: int, *values: Any
    ) -> tuple[Any, Any, list[Any]]:
        """Returns parents, tokens and values of the best `count` candidates."""
        vocabulary = ranks.shape[-1]

        def flat(x: Any) -> Any:
            return ops.reshape(x, (room.size, self.decoding.beams * vocabulary))

        places = ops.cast(ops.top_k(flat(ranks), count)[1], "int32")
        parents = places // vocabulary
        found = [ops.take_along_axis(flat(x), places, axis=1) for x in values]
        return parents, places - parents * vocabulary, found

    def listed(
        self, ids: Any, scores: Any, ranks: Any, exists: Any, room: Room
    ) -> Generated:
        """Returns the best sequences; padding for those that do not exist."""
        wide = ops.expand_dims(exists, 2)
        before = ops.arange(room.length, dtype="int32") < room.start
        ids = ops.where(ops.logical_or(wide, before), ids, self.pad_id)
        found = (
            ids,
            ops.where(exists, ranks, IMPOSSIBLE),
            ops.where(wide, scores, ops.zeros_like(scores)),
        )
        return Generated(*(each[:, : self.decoding.n_best] for each in found))


class TransformersBeams(Beams):
    """`beams` open sequences and the `beams` best that have ended.

    By the rules of the library transformers. Unlike in `Beams`, a sequence
    that ends leaves its place to an open one, scores are divided by
    `n ** length_penalty`, and the search usually ends before it is certain
    that no open sequence becomes better.

    With a `repetition_penalty` sequences are ranked by penalized
    log-probabilities; token scores are the model's own.
    """

    def divided(self, totals: Any, count: Any) -> Any:
        count = ops.cast(count + len(self.decoding.prefix_ids), "float32")
        return totals / ops.power(count, self.decoding.length_penalty)

    def begin(self, prompt: Any, room: Room) -> Any:
        shape = room.batch, self.decoding.beams
        ids = self.by_beam(prompt, room)
        done = (
            ids,
            ops.zeros_like(ids, dtype="float32"),
            ops.full(shape, _OUT, "float32"),
            ops.zeros(shape, "bool"),
        )
        possible = ops.ones((room.batch, 1), "bool")
        goes_on = ops.ones((), "bool")
        return self.alone(room, _OUT), done, possible, goes_on

    def goes_on(self, state: Any, room: Room) -> Any:
        _, (*_, is_done), possible, goes_on = state
        goes_on = ops.logical_and(goes_on, ops.any(possible))
        if self.decoding.early_stopping is True:
            goes_on = ops.logical_and(
                goes_on, ops.logical_not(ops.all(is_done))
            )
        return goes_on

    def choose(
        self, scores: Any, logs: Any, text: Any, index: Any, room: Room
    ) -> Chosen:
        prompt, token_scores, (totals, done, possible, _) = text
        decoding = self.decoding
        penalizes = decoding.repetition_penalty != 1
        if decoding.renormalize_logits:
            scores = log_probabilities(scores)
        gains = self.by_beam(scores, room)
        own = self.by_beam(ops.cast(logs, "float32"), room)
        totals = ops.expand_dims(totals, 2) + gains
        # Enough that as many as there are beams do not end.
        count = max(2, 1 + len(decoding.end_ids)) * decoding.beams
        count = min(count, decoding.beams * totals.shape[-1])
        parents, tokens, (totals, gained) = self.best(
            room, totals, count, totals, own if penalizes else gains
        )
        is_end = is_any(tokens, decoding.end_ids)
        is_end = ops.logical_or(is_end, ops.equal(index, room.length - 1))
        rows = self.rows(parents, room)
        ids, by_token = (
            self.by_beam(
                with_column(
                    ops.take(buffer, rows, axis=0), index, ops.reshape(x, (-1,))
                ),
                room,
                count,
            )
            for buffer, x in ((prompt, tokens), (token_scores, gained))
        )
        # Those that have ended, with the ones before: the best stay.
        is_among = ops.arange(count, dtype="int32") < decoding.beams
        ends_now = ops.logical_and(is_end, ops.expand_dims(is_among, 0))
        late = ops.logical_not(possible)
        if decoding.early_stopping is True:
            is_full = ops.all(done[3], axis=1, keepdims=True)
            late = ops.logical_or(late, is_full)
        reached = index - room.start + 1
        new = self.divided(totals, reached) + _out(late)
        new = new + _out(ops.logical_not(ends_now))
        every = [
            ops.concatenate(pair, axis=1)
            for pair in zip(done, (ids, by_token, new, ends_now), strict=True)
        ]
        best = ops.cast(ops.top_k(every[2], decoding.beams)[1], "int32")
        done = tuple(
            ops.take_along_axis(
                x, best if len(x.shape) == 2 else ops.expand_dims(best, 2), 1
            )
            for x in every
        )
        # Those that continue.
        kept = ops.cast(
            ops.top_k(totals + _out(is_end), decoding.beams)[1], "int32"
        )
        totals = totals + _out(is_end)
        totals, tokens, gained, parents = (
            ops.take_along_axis(x, kept, axis=1)
            for x in (totals, tokens, gained, parents)
        )
        if decoding.early_stopping == "never" and decoding.length_penalty > 0:
            reached = room.length - room.start
        reach = self.divided(totals[:, :1], reached)  # (batch, 1)
        least = smallest(done[2], axis=1, keepdims=True)
        least = ops.where(done[3], least, _OUT)
        better = ops.any(reach > least, axis=1, keepdims=True)
        possible = ops.logical_and(possible, better)
        goes_on = ops.logical_not(ops.all(is_end))
        return Chosen(
            ops.reshape(tokens, (-1,)),
            ops.reshape(gained, (-1,)),
            (totals, done, possible, goes_on),
            self.rows(parents, room),
        )

    def end(self, text: Any, room: Room) -> Generated:
        ids, scores, ranks, _ = text[2][1]
        return self.listed(ids, scores, ranks, ranks > _OUT / 2, room)


def _out(where: Any) -> Any:
    return ops.cast(where, "float32") * _OUT
