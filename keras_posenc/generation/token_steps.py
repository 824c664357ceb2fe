"""A search cut into steps: for streams, and for apps that choose tokens."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.flat_cache import OF_APPS, flat, nested
from keras_posenc.generation.generated import in_full
from keras_posenc.generation.logit_size import StateSize
from keras_posenc.generation.prompts import refusable
from keras_posenc.generation.search import Search, vocabulary_of
from keras_posenc.ops.named import NamedArguments

_FLAGS = ("tokens", "memory_tokens")


class Beginning(NamedArguments, keras.layers.Layer):
    """Turns ids into everything that the first `Continuing` takes.

    Args:
        search: The search; its beams, sampling and penalties have no effect.
        front: How many columns of padding are added in front of prompts, so
            that there are as many slots for a static length as for a dynamic
            one; None for as few as possible.
        **kwargs: Keras's `name` and the like.

    Call arguments:
        inputs: Integers `(batch, seq)`: sources, or prompts.
        room: How many tokens follow; by default as the search says.

    Returns:
        A dict of tensors, batch first. `token`, int32 `(batch,)`, is the last
        of the prompt. The others are the model's state: floats as float32, and
        flags as int32, which all runtimes have.
    """

    def __init__(
        self, search: Search, *, front: int | None = 2, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.search = search
        self.front = front

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any, *, room: Any = None) -> dict[str, Any]:
        prompt, start, cache = self.search.read(
            inputs, front=self.front, room=room
        )
        # A step does not need the table of all positions.
        cache = {name: cache[name] for name in cache if name != "encoding"}
        found = {
            "token": ops.take(prompt, start - 1, axis=1),
            **_flat(cache, ops.shape(inputs)[0]),
        }
        if self.search.decoding.least:
            found["count"] = ops.zeros_like(found["token"])
        return found

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None


class Continuing(NamedArguments, keras.layers.Layer):
    """Computes the logits of the next token.

    Args:
        search: As for `Beginning`.
        **kwargs: Keras's `name` and the like.

    Call arguments:
        inputs: A dict of what `Beginning` returns, with the `token` that was
            chosen last.

    Returns:
        A dict of `logits`, float32 `(batch, vocabulary)`, of the next token:
        impossible for padding and the start symbol, and for end symbols before
        `min_length`; NaN where the cache is full. And of the state that
        changed.
    """

    def __init__(self, search: Search, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        # In a low dtype, the state, which is float32, would be rounded.
        self.autocast = False
        self.search = search

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        search = self.search
        logits, is_full, found = advanced(search, inputs)
        count = inputs["count"][0] if "count" in inputs else 0  # of all rows
        logits = search.allowed().forbid(in_full(logits), count)
        return {"logits": ops.where(is_full, float("nan"), logits), **found}


def advanced(
    search: Search, inputs: Mapping[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """Reads one token of each row.

    Args:
        search: The search.
        inputs: As for `Continuing`.

    Returns:
        The model's logits `(batch, vocabulary)`; whether the cache was full,
        bool `()`; and the state that changed.
    """
    token = refusable(
        inputs["token"], vocabulary_of(search.model), search.pad_id
    )
    cache = {
        "slot": inputs["slot"][0],
        "positions": inputs["positions"],
        **{x: ops.not_equal(inputs[x], 0) for x in _FLAGS if x in inputs},
        **nested(inputs, OF_APPS, search.model.decoder.compute_dtype),
    }
    room = ops.shape(cache["tokens"])[1]
    is_full = ops.greater_equal(cache["slot"], room)
    cache["slot"] = ops.minimum(cache["slot"], room - 1)
    logits, cache = search.model.call_with_cache(
        ops.expand_dims(token, 1), cache
    )
    moving = {
        name: value
        for name, value in cache.items()
        if not name.startswith("memory")
    }
    found = _flat(moving, ops.shape(token)[0])
    if "count" in inputs:
        found["count"] = inputs["count"] + 1
    return ops.squeeze(logits, 1), is_full, found


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


def step_models(search: Search, name: str) -> dict[str, keras.Model]:
    """Returns `encode` and `decode`, Functional models with these weights."""
    given = keras.Input((None,), dtype="int32", name="ids")
    encode = keras.Model(
        given, Beginning(search, name="begin")(given), name=f"{name}_encode"
    )
    state = {
        key: keras.Input(batch_shape=each.shape, dtype=each.dtype, name=key)
        for key, each in encode.output.items()
    }
    decode = keras.Model(
        state, Continuing(search, name="step")(state), name=f"{name}_decode"
    )
    for model in encode, decode:
        model.autocast = False
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        model.supports_masking = True
    if search.has_encoder:
        # The buffers are empty, or hold a prefix. Verification would wonder.
        encode.constant_outputs = tuple(
            name for name in state if name.startswith(("key_", "value_"))
        )
    ids = np.arange(1, 5, dtype="int32")[np.newaxis]
    sizes = StateSize(
        search.model, lambda: encode(ids % search.model.vocabulary_size)
    )
    encode.output_scales = decode.output_scales = sizes
    decode.own_probes = functools.partial(_states, search, encode, decode)
    return {"encode": encode, "decode": decode}


def _states(
    search: Search, encode: keras.Model, decode: keras.Model
) -> Iterator[dict[str, Any]]:
    """Yields what `decode` takes, of random ids, to verify exports with."""
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (3, 3), (2, 7)):
        size = search.model.vocabulary_size
        ids = rng.integers(1, size, (batch, length), dtype="int32")
        ids[1:2, (length + 1) // 2 :] = search.pad_id
        state = encode(ids)
        for _ in range(2):  # the first token, and one after it
            yield {
                name: ops.convert_to_numpy(value)
                for name, value in state.items()
            }
            found = decode(state)
            token = ops.top_k(found["logits"], 1)[1][:, 0]
            found["token"] = ops.cast(token, "int32")
            state = {name: found.get(name, state[name]) for name in state}
