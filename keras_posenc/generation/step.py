"""A search cut into steps: for streams, and for apps that choose tokens."""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.decoding import SAMPLING
from keras_posenc.generation.generated import in_full, is_any, refusable
from keras_posenc.generation.search import Search, sizes_of, vocabulary_of
from keras_posenc.keras_internals import traced_for_any_size

#: Names of tensors: by the part of a cache that lists layers, and by the
#: tensor of a layer.
Names = Mapping[str, Mapping[str, str]]

_TENSORS = ("key", "value", "steps")
OF_APPS: Names = {
    "blocks": {name: f"{name}_{{}}" for name in _TENSORS},
    "memory": {name: f"memory_{name}_{{}}" for name in _TENSORS},
}
OF_ENGINES: Names = {
    "blocks": {"key": "kv_cache_k_{}", "value": "kv_cache_v_{}"}
}


def flat(cache: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Returns the tensors of a cache's layers by name, as float32."""
    return {
        names[part][name].format(i): ops.cast(value, "float32")
        for part in names
        for i, layer in enumerate(cache.get(part, ()))
        for name, value in layer.items()
    }


def nested(
    found: Mapping[str, Any], names: Names, dtype: str
) -> dict[str, Any]:
    """Returns the layers of a cache of such tensors, in this dtype."""
    cache = {part: [*_layers(found, names[part], dtype)] for part in names}
    return {part: layers for part, layers in cache.items() if layers}


def _layers(
    found: Mapping[str, Any], names: Mapping[str, str], dtype: str
) -> Iterator[dict[str, Any]]:
    i = 0
    while names["key"].format(i) in found:
        yield {
            # Steps are never in a low dtype.
            name: value if name == "steps" else ops.cast(value, dtype)
            for name in names
            if (value := found.get(names[name].format(i))) is not None
        }
        i += 1


_ANY = 1 << 30  # more than any text has
_FLAGS = ("tokens", "memory_tokens")


class _Part(keras.Model):
    """A part of a search: a layer, or compiled by `run`.

    Eager operators would take ten times as long for each token.
    """

    predict_function: Any  # Keras's: None before it is traced

    def __init__(self, search: Search, name: str) -> None:
        # In a low dtype, noise would sample other tokens, and the state, which
        # is float32, would be rounded.
        super().__init__(name=f"{search.name}_{name}", autocast=False)
        self.supports_masking = True
        self.search = search
        self.made: dict[str, Any] = {}  # the specs of its outputs, once traced
        self.traced_with: list[int] = []

    def build(self, input_shape: Any) -> None:
        self.built = True

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        return None

    def forget_changed(self) -> None:
        """Drops a trace of other variables: LoRA adds some, say."""
        variables = [id(each) for each in self.search.model.variables]
        if variables != self.traced_with:
            self.predict_function, self.traced_with = None, variables

    def trace(
        self, inputs: Mapping[str, Any], before: "_Part | None" = None
    ) -> None:
        """Has TensorFlow trace the part, once, for `run`.

        Axes are of any length, or as in the outputs of the part `before`.
        """
        if self.predict_function is None:
            known = {} if before is None else before.made
            self.predict_function, self.made = traced_for_any_size(
                lambda given: self(given), inputs, known, self.jit_compile
            )

    def run(
        self, inputs: Mapping[str, Any], before: "_Part | None" = None
    ) -> dict[str, Any]:
        """Returns what the part makes of a batch, as tensors."""
        backend = keras.backend.backend()
        if backend == "jax":
            return self.predict_on_batch(inputs)
        # A cache is large: no step makes arrays of NumPy of it.
        if backend != "tensorflow":
            self.make_predict_function()
            return self.predict_function([(inputs,)])
        self.trace(inputs, before)
        return self.predict_function(inputs)


class First(_Part):
    """Turns ids into everything that the first `Step` takes.

    `front` is how many columns of padding are added in front of prompts, so
    that there are as many slots for a static length as for a dynamic one. It
    takes ids, `(batch, seq)`, or a dict of these and of `free`, with as many
    columns as tokens follow. It returns the last `token` of the prompt and the
    model's state: floats as float32, and flags as int32, which all runtimes
    have.
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

    It takes what `First` and then each step returns, with the `token` that was
    chosen last. To choose also `noise`, float32 `(batch,)`; `seen`, int32
    `(batch, length)`, the prompt and the ids after it; `index`, the column of
    `seen` that the token is for, `(batch,)`; and `numbers`. It returns the
    state that changed; and the `token`, whether it has `ended`, and a `score`,
    NaN where a logit is. Without a choice `logits`, float32 `(batch,
    vocabulary)`: impossible for what is never generated, and NaN where the
    cache is full.
    """

    def __init__(self, search: Search, *, chooses: bool = True) -> None:
        super().__init__(search, "step")
        self.chooses = chooses

    @staticmethod
    def key(search: Search) -> Any:
        """Returns what is equal for searches of a model that step alike."""
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


def begun(
    first: First, step: Step, inputs: Any, for_step: Mapping[str, Any]
) -> dict[str, Any]:
    """Runs `first`; a thread meanwhile traces `step`, on TensorFlow, once.

    `for_step` are arrays as the step takes them besides the state.
    """
    if keras.backend.backend() != "tensorflow" or step.predict_function:
        return first.run(inputs)
    first.trace(inputs)
    with ThreadPoolExecutor(1) as pool:
        # Not `first`: this thread alone has the caller's `tf.device`.
        traced = pool.submit(step.trace, {**first.made, **for_step}, first)
        found = first.run(inputs)
        traced.result()
    return found


def numbers_of(search: Search) -> np.ndarray:
    """Returns numbers that a `Step` takes, so that none is traced again."""
    of_draw = (
        (1, 1, 0)
        if search.decoding.draw is None
        else search.decoding.draw.numbers
    )
    return np.array([[search.decoding.repetition_penalty, *of_draw]], "float32")


@contextlib.contextmanager
def tracing_quietly() -> Iterator[None]:
    """Drops TensorFlow's advice on functions that are traced several times."""
    logger = logging.getLogger("tensorflow")

    def is_other(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def step_models(search: Search, name: str) -> dict[str, keras.Model]:
    """Returns `encode` and `decode`, Functional models with these weights."""
    given = keras.Input((None,), dtype="int32", name="ids")
    encode = keras.Model(
        given, First(search, front=2)(given), name=f"{name}_encode"
    )
    state = {
        key: keras.Input(batch_shape=each.shape, dtype=each.dtype, name=key)
        for key, each in encode.output.items()
    }
    decode = keras.Model(
        state, Step(search, chooses=False)(state), name=f"{name}_decode"
    )
    for model in encode, decode:
        model.autocast = False
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        model.supports_masking = True
    ids = np.arange(1, 5, dtype="int32")[np.newaxis]
    sizes = functools.partial(
        sizes_of,
        search.model,
        lambda: encode(ids % search.model.vocabulary_size),
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
