"""The one loop over generated tokens, and what a token is chosen by."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_posenc.generation.allowed import Allowed
from keras_posenc.generation.claim import Claim
from keras_posenc.generation.generated import (
    Generated,
    Next,
    is_any,
    log_probabilities,
    with_column,
)


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
    """One token of each row, its log-likelihood, and what a way keeps.

    `rows` are the rows that go on, in the place of these: integers `(rows,)`.
    """

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

    Args:
        next: `next(prompt, cache, index) -> (logits, hidden, cache)`, logits
            `(rows, vocabulary)` of the token at `index`, the same as for
            keras-hub's samplers. `hidden` is not used, and may be None.
        prompt: Integers `(batch, length)`: the tokens before `index`, and free
            columns for those to come, whatever they contain.
        way: How tokens are chosen.
        allowed: Which may be.
        cache: What `next` keeps from step to step: tensors in any structure,
            whose shapes do not change, of `batch` rows.
        index: The column of the first token, an integer or a scalar tensor.
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

    Args:
        decoding: The options.
        pad_id: The id of padding, which follows the end of a row.
        noise: If tokens are sampled, floats in [0, 1), `(batch, steps)`, with
            a column for each of the prompt from `index` on. The same noise
            samples the same tokens.
        claim: Sequences that decide near-ties; see `Claim`.
    """

    def __init__(
        self,
        decoding: Any,
        pad_id: int = 0,
        noise: Any = None,
        claim: Claim | None = None,
    ) -> None:
        self.decoding, self.pad_id = decoding, pad_id
        self.noise, self.claim = noise, claim

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
        """Returns a token of each row, int32 `(batch,)`, for a column.

        Generated from `start` on; `numbers` are those of `Sampling`.
        """
        if self.claim is not None:
            logits = self.claim.favored(logits, index)
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
        tokens = draw(logits, level, numbers=numbers)
        if self.claim is None:
            return tokens
        claimed, most = self.claim.tokens(index), self.claim.tolerance
        is_near = draw.distance(logits, level, claimed) <= most
        return ops.where(is_near, claimed, tokens)
