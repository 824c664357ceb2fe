"""A search cut into steps: for streams, and for apps that choose tokens."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.decoding import SAMPLING
from keras_posenc.generation.flat_cache import OF_APPS, flat, nested
from keras_posenc.generation.generated import in_full, is_any
from keras_posenc.generation.prompts import refusable
from keras_posenc.generation.search import Search, vocabulary_of

_ANY = 1 << 30  # more than any text has
_FLAGS = ("tokens", "memory_tokens")


class _Part(keras.Model):
    """A part of a search: a layer, or compiled by `predict_on_batch`.

    Eager operators would take ten times as long for each token.
    """

    def __init__(self, search: Search, name: str) -> None:
        # In a low dtype, noise would sample other tokens, and the state, which
        # is float32, would be rounded.
        super().__init__(name=f"{search.name}_{name}", autocast=False)
        self.supports_masking = True
        self.search = search

    def build(self, input_shape: Any) -> None:
        self.built = True

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None


class First(_Part):
    """Turns ids into everything that the first `Step` takes.

    Args:
        search: The search; its beams, sampling and penalties have no effect.
        front: How many columns of padding are added in front of prompts, so
            that there are as many slots for a static length as for a dynamic
            one; None for as few as possible.

    Call arguments:
        inputs: Integers `(batch, seq)`, sources or prompts; or a dict of these
            as `ids`, and of `free`, int32 `(batch, room)`: any numbers, in as
            many columns as tokens follow, if not as the search says.

    Returns:
        A dict of tensors, batch first. `token`, int32 `(batch,)`, is the last
        of the prompt. The others are the model's state: floats as float32, and
        flags as int32, which all runtimes have.
    """

    @staticmethod
    def key(search: Search) -> Any:
        """Returns what is equal for searches of a model that begin alike."""
        of = search.decoding
        ids = of.start_id, of.prefix_ids, of.removed_ids
        return First, *ids, of.least > 0

    def __init__(self, search: Search, *, front: int | None = None) -> None:
        super().__init__(search, "first")
        self.front = front

    def call(self, inputs: Any) -> dict[str, Any]:
        ids, room = inputs, None
        if isinstance(inputs, Mapping):
            ids, room = inputs["ids"], ops.shape(inputs["free"])[1]
        prompt, start, cache = self.search.read(
            ids, front=self.front, room=room
        )
        # A step does not need the table of all positions.
        cache = {name: cache[name] for name in cache if name != "encoding"}
        found = {
            "token": ops.take(prompt, start - 1, axis=1),
            **_flat(cache, ops.shape(ids)[0]),
        }
        if self.search.decoding.least:
            found["count"] = ops.zeros_like(found["token"])
        return found


class Step(_Part):
    """Reads one token of each row, and chooses the next one.

    Args:
        search: The search, without beams.
        chooses: Whether to choose; an app does that itself.

    Call arguments:
        inputs: A dict of what `First` and then each step returns, with the
            `token` that was chosen last. To choose also of `noise`, float32
            `(1,)`; `seen`, int32 `(1, length)`, the prompt and the ids after
            it, padded; `index`, int32 `(1,)`, the column of `seen` that the
            token is for; and `numbers`, see `numbers_of`.

    Returns:
        A dict of the state that changed; and of the `token`, int32 `(1,)`,
        whether it has `ended`, bool `(1,)`, and a `score`, float32 `(1,)`, NaN
        where a logit is. Without a choice, of `logits`, float32 `(batch,
        vocabulary)`, of the next token: impossible for padding and the start
        symbol, and for end symbols before `min_length`; NaN where the cache is
        full.
    """

    def __init__(self, search: Search, *, chooses: bool = True) -> None:
        super().__init__(search, "step")
        self.chooses = chooses

    @staticmethod
    def key(search: Search) -> Any:
        """Returns what is equal for searches of a model that step alike.

        All options, except numbers that a step is fed: of these, whether they
        change anything.
        """
        decoding = search.decoding
        draw = decoding.draw
        fed: dict[str, Any] = dict.fromkeys((*SAMPLING, "seed"))
        if draw is not None:
            fed["temperature"], fed["top_k"] = 1.0, draw.top_k
            fed["top_p"] = 0.5 if draw.top_p < 1 else None
            fed["min_p"] = 0.5 if draw.min_p > 0 else None
        if decoding.repetition_penalty != 1:
            fed["repetition_penalty"] = 2.0
        decoding = dataclasses.replace(decoding, max_length=_ANY, **fed)
        return Step, decoding, search.forbidden_ids

    def call(self, inputs: Any) -> dict[str, Any]:
        search, model = self.search, self.search.model
        token = refusable(inputs["token"], vocabulary_of(model), search.pad_id)
        cache = {
            "slot": inputs["slot"][0],
            "positions": inputs["positions"],
            **{x: ops.not_equal(inputs[x], 0) for x in _FLAGS if x in inputs},
            **nested(inputs, OF_APPS, model.decoder.compute_dtype),
        }
        room = ops.shape(cache["tokens"])[1]
        is_full = ops.greater_equal(cache["slot"], room)
        cache["slot"] = ops.minimum(cache["slot"], room - 1)
        logits, cache = model.call_with_cache(ops.expand_dims(token, 1), cache)
        logits = in_full(ops.squeeze(logits, 1))
        moving = {x: cache[x] for x in cache if not x.startswith("memory")}
        found = _flat(moving, ops.shape(token)[0])
        count = inputs["count"][0] if "count" in inputs else 0  # of all rows
        if "count" in inputs:
            found["count"] = inputs["count"] + 1
        if self.chooses:
            return {**found, **self._chosen(logits, count, inputs)}
        logits = search.allowed().forbid(logits, count)
        return {"logits": ops.where(is_full, float("nan"), logits), **found}

    def _chosen(self, logits: Any, count: Any, inputs: Any) -> dict[str, Any]:
        search, index = self.search, inputs["index"][0]
        score = ops.logsumexp(logits, axis=-1)  # before a NaN is hidden
        penalty, *of_draw = (
            ops.cast(inputs["numbers"][:, i : i + 1], logits.dtype)
            for i in range(4)
        )
        logits = search.allowed()(
            logits,
            prompt=inputs["seen"],
            index=index,
            start=index - count,
            penalty=penalty,
        )
        way = search.way(ops.expand_dims(inputs["noise"], 1))
        token = way.pick(logits, 0, 0, of_draw)
        ended = is_any(token, search.decoding.end_ids)
        return {"token": token, "ended": ended, "score": score}


def _flat(cache: dict[str, Any], batch: Any) -> dict[str, Any]:
    """Returns a cache as tensors by name, batch first."""
    return {
        "slot": ops.broadcast_to(cache["slot"], (batch,)),
        **{
            name: ops.cast(cache[name], "int32")
            for name in ("positions", *_FLAGS)
            if name in cache
        },
        **flat(cache, OF_APPS),
    }


def numbers_of(search: Search) -> np.ndarray:
    """Returns the numbers of a search that a `Step` takes, float32 `(1, 4)`.

    As inputs: another temperature is not traced again.
    """
    of_draw = (
        (1, 1, 0)
        if search.decoding.draw is None
        else search.decoding.draw.numbers
    )
    return np.array([[search.decoding.repetition_penalty, *of_draw]], "float32")


def run_on_batch(model: keras.Model, inputs: Any) -> Any:
    """Returns what `predict_on_batch` does, as tensors where possible.

    A cache is large: turned into an array of NumPy and back at each step, it
    would take a part of each step's time.
    """
    if keras.backend.backend() == "jax":
        return model.predict_on_batch(inputs)
    model.make_predict_function()
    with tracing_quietly():
        return model.predict_function([(inputs,)])


@contextlib.contextmanager
def tracing_quietly() -> Iterator[None]:
    """Drops TensorFlow's advice on functions that are traced several times.

    It takes those of several models for one, and here each is traced rarely.
    """
    logger = logging.getLogger("tensorflow")

    def is_other(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
