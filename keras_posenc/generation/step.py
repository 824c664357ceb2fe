"""Generating one token, as a compiled function, for streams."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.decoding import SAMPLING
from keras_posenc.generation.generated import in_full, is_any
from keras_posenc.generation.search import Search
from keras_posenc.generation.token_steps import Beginning, advanced

_ANY = 1 << 30  # more than any text has


class First(keras.Model):
    """The state before the first step, compiled by `predict_on_batch`.

    Args:
        search: The search, without beams.

    Call arguments:
        inputs: A dict of `ids`, integers `(1, seq)`, and `free`, int32
            `(1, room)`: any numbers, in as many columns as tokens follow.

    Returns:
        What `Beginning` returns.
    """

    @staticmethod
    def key(search: Search) -> Any:
        """Returns what is equal for searches of a model that begin alike."""
        of = search.decoding
        ids = of.start_id, of.prefix_ids, of.removed_ids
        return First, *ids, of.least > 0

    def __init__(self, search: Search) -> None:
        super().__init__(name=f"{search.name}_first", autocast=False)
        self.beginning = Beginning(search, front=None, name="begin")

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        room = ops.shape(inputs["free"])[1]
        return self.beginning(inputs["ids"], room=room)


class Step(keras.Model):
    """One step of a search, compiled by `predict_on_batch`.

    Eager operators would take ten times as long for each token.

    Args:
        search: As for `First`.

    Call arguments:
        inputs: A dict of what `First` and then each step returns, and of
            `noise`, float32 `(1,)`; `seen`, int32 `(1, length)`, the prompt
            and the ids after it, padded; `index`, int32 `(1,)`, the column of
            `seen` that the token is for; and `numbers`, see `numbers_of`.

    Returns:
        A dict of the `token`, int32 `(1,)`, whether it has `ended`, bool
        `(1,)`, a `score`, float32 `(1,)`, NaN where a logit is, and the
        model's state.
    """

    def __init__(self, search: Search) -> None:
        # Noise in a low dtype would sample other tokens.
        super().__init__(name=f"{search.name}_step", autocast=False)
        self.search = search

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

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        search, inputs = self.search, dict(inputs)
        noise, seen, index, numbers = (
            inputs.pop(name) for name in ("noise", "seen", "index", "numbers")
        )
        logits, _, found = advanced(search, inputs)
        logits, index = in_full(logits), index[0]
        score = ops.logsumexp(logits, axis=-1)  # before a NaN is hidden
        start = index - inputs["count"][0] if "count" in inputs else index
        penalty, *of_draw = (
            ops.cast(numbers[:, i : i + 1], logits.dtype) for i in range(4)
        )
        logits = search.allowed()(
            logits, prompt=seen, index=index, start=start, penalty=penalty
        )
        way: Any = search.way(ops.expand_dims(noise, 1))
        token = way.pick(logits, 0, 0, of_draw)
        return {
            **found,
            "token": token,
            "ended": is_any(token, search.decoding.end_ids),
            "score": score,
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
