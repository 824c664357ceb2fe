"""The one loop over generated tokens, and what a token is chosen by."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.decoding import Decoding
from keras_posenc.generation.generated import (
    IMPOSSIBLE,
    Generated,
    Next,
    in_full,
    is_any,
    log_probabilities,
    with_column,
)

_LOWEST = -3e38  # about the lowest float32


class Allowed:
    """Makes impossible what may not be the next token.

    In the order of transformers: the penalty of repetition, ids that are never
    generated and ends that come too early, repeated parts, and a forced end.
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
    """Returns bool `(batch, vocabulary)`: the ids before a column."""
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
    """Divides positive logits of seen ids by the penalty; multiplies others."""
    less = ops.where(logits > 0, logits / penalty, logits * penalty)
    # Clipped: forbidden ids must remain the least likely, however large the
    # penalty is.
    less = ops.maximum(less, _LOWEST)
    return ops.where(ops.logical_and(seen, logits > IMPOSSIBLE), less, logits)


class Room(NamedTuple):
    """Where tokens go: columns from `start` on, below `length`."""

    start: Any
    length: Any
    batch: Any

    @property
    def size(self) -> int:
        """The batch, for reshapes."""
        return self.batch if isinstance(self.batch, int) else -1


class Chosen(NamedTuple):
    """One token of each row, and the `rows` that go on in place of these."""

    tokens: Any
    gained: Any
    state: Any
    rows: Any = None


def decode(
    next: Next,
    prompt: Any,
    way: "Greedy",
    allowed: Allowed,
    *,
    cache: Any = None,
    index: Any = 1,
) -> Generated:
    """Generates tokens until the way to choose them is at its end.

    `next` is as for keras-hub's samplers. The prompt, `(batch, length)`, has
    the tokens before `index`, and free columns for those to come. `cache` is
    what `next` keeps from step to step: tensors of `batch` rows.
    """
    prompt = ops.convert_to_tensor(prompt)
    prompt = ops.cast(prompt, "int32")
    # TensorFlow's loops need sizes that are known not to change.
    room = Room(
        ops.cast(index, "int32"),
        prompt.shape[1] or ops.shape(prompt)[1],
        prompt.shape[0] or ops.shape(prompt)[0],
    )
    free = ops.arange(room.length, dtype="int32") >= room.start
    prompt = ops.where(ops.expand_dims(free, 0), way.pad_id, prompt)
    cache = () if cache is None else cache
    beams = way.decoding.beams
    if beams > 1:
        rows = ops.repeat(ops.arange(room.batch, dtype="int32"), beams)
        prompt, cache = rows_of((prompt, cache), rows)

    def unfinished(index: Any, text: Any, cache: Any) -> Any:
        return ops.logical_and(
            ops.less(index, room.length), way.goes_on(text[2], room)
        )

    def step(index: Any, text: Any, cache: Any) -> tuple[Any, ...]:
        prompt, scores, _ = text
        logits, _, cache = next(prompt, cache, index)
        logs = log_probabilities(logits)
        read = allowed(
            way.read(logits, logs), prompt=prompt, index=index, start=room.start
        )
        found = way.choose(read, logs, text, index, room)
        if found.rows is not None:
            prompt, scores, cache = rows_of((prompt, scores, cache), found.rows)
        prompt = with_column(prompt, index, found.tokens)
        scores = with_column(scores, index, found.gained)
        return index + 1, (prompt, scores, found.state), cache

    scores = ops.zeros_like(prompt, dtype="float32")
    text = prompt, scores, way.begin(prompt, room)
    _, text, _ = ops.while_loop(unfinished, step, (room.start, text, cache))
    return way.end(text, room)


def rows_of(tree: Any, rows: Any) -> Any:
    """Returns these rows of all tensors in a structure that have any axes."""
    return keras.tree.map_structure(
        lambda x: ops.take(x, rows, axis=0) if len(x.shape) else x, tree
    )


class Greedy:
    """How tokens are chosen: here the most likely one, until all rows end.

    `noise`, floats in [0, 1), `(batch, steps)`, has a column for each token.
    """

    def __init__(
        self,
        decoding: Any,
        pad_id: int = 0,
        noise: Any = None,
    ) -> None:
        self.decoding, self.pad_id, self.noise = decoding, pad_id, noise

    def read(self, logits: Any, logs: Any) -> Any:
        """Returns the scores to choose by, of logits and their logarithms."""
        return logits

    def begin(self, prompt: Any, room: Room) -> Any:
        """Returns the state before the first step."""
        return ops.zeros_like(prompt[:, 0], dtype="bool")

    def goes_on(self, state: Any, room: Room) -> Any:
        """Returns whether another token may change the outcome."""
        return ops.logical_not(ops.all(state))

    def choose(
        self, scores: Any, logs: Any, text: Any, index: Any, room: Room
    ) -> Chosen:
        """Chooses; `text` is the prompt, token scores and state so far."""
        tokens = self.pick(scores, index, room.start)
        at = ops.expand_dims(tokens, 1)
        gained = ops.squeeze(ops.take_along_axis(logs, at, axis=1), 1)
        tokens = ops.where(text[2], self.pad_id, tokens)
        gained = ops.where(text[2], ops.zeros_like(gained), gained)
        ended = ops.logical_or(text[2], is_any(tokens, self.decoding.end_ids))
        return Chosen(tokens, gained, ended)

    def pick(
        self, logits: Any, index: Any, start: Any, numbers: Sequence[Any] = ()
    ) -> Any:
        """Returns a token of each row, int32 `(batch,)`, for a column."""
        # Not argmax: some converters have no operator of its own for it.
        return ops.cast(ops.squeeze(ops.top_k(logits, 1)[1], 1), "int32")

    def end(self, text: Any, room: Room) -> Generated:
        """Returns the outcome."""
        ids, scores, _ = text
        return Generated(ids, ops.sum(scores, axis=1), scores)


class Sampled(Greedy):
    """Tokens of the model's distribution, drawn with given noise."""

    def pick(
        self, logits: Any, index: Any, start: Any, numbers: Sequence[Any] = ()
    ) -> Any:
        draw = self.decoding.draw
        level = ops.take(self.noise, index - start, axis=1)
        return draw(logits, level, numbers=numbers)
