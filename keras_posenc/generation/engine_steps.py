"""A decoder as LiteRT-LM's engine calls it: chunks of tokens, and caches."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.flat_cache import OF_ENGINES, flat, nested
from keras_posenc.generation.logit_size import sizes_of
from keras_posenc.generation.prompts import refusable
from keras_posenc.generation.search import Search
from keras_posenc.ops.named import NamedArguments
from keras_posenc.transformer._input_position import table_of

TOKENS, PLACES, LOGITS = "tokens", "input_pos", "logits"


class EngineStep(NamedArguments, keras.layers.Layer):
    """Reads a chunk of one sequence, after what its caches hold.

    A chunk that is not full ends with tokens 0 at place 0. Real tokens are
    those at consecutive places, so the first one tells them from padding.
    Padding may be beyond the caches.

    Call arguments:
        inputs: A dict of `tokens`, int32 `(1, n)`; `input_pos`, int32 `(n,)`,
            the places of these tokens in the sequence; and for each block
            `kv_cache_k_0` and `kv_cache_v_0`, float32 `(1, heads, length,
            head_dim)`.

    Returns:
        A dict of the caches, by the same names; and `with_logits`, of `logits`,
        float32 `(1, n, vocabulary)`, impossible for ids that are never
        generated.
    """

    def __init__(
        self, search: Search, *, with_logits: bool, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        # In a low dtype, the caches, which are float32, would be rounded.
        self.autocast = False
        self.search = search
        self.with_logits = with_logits
        self.forbid = search.allowed().forbid

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> dict[str, Any]:
        model = self.search.model
        tokens = refusable(inputs[TOKENS], model.vocabulary_size, model.pad_id)
        places = inputs[PLACES]
        first = places[0]
        count = ops.arange(tokens.shape[1], dtype="int32")
        is_real = ops.expand_dims(ops.equal(places, first + count), 0)
        length = inputs["kv_cache_k_0"].shape[2]
        slots = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        before = ops.less(slots, first)
        start = first
        if tokens.shape[1] > 1:
            # A slice beyond the caches would be written before its place: then
            # padding comes first.
            beyond = ops.maximum(first + tokens.shape[1] - length, 0)
            start = first - beyond
            source = ops.maximum(count - beyond, 0)
            tokens = ops.take(tokens, source, axis=1)
            is_real = ops.logical_and(
                ops.take(is_real, source, axis=1),
                ops.expand_dims(count >= beyond, 0),
            )
        cache = {
            "slot": start,
            "tokens": before,
            "positions": slots,
            **nested(inputs, OF_ENGINES, model.decoder.compute_dtype),
        }
        position = model.target_input_position
        width = model.target_embedding.output_dim
        table = table_of(position, width, length)
        if table is not None:
            cache["encoding"] = table
        # LiteRT writes slices, and the places of chunks are in the cache.
        logits, cache = model.call_with_cache(
            tokens, cache, mask=is_real, write="slice"
        )
        found = flat(cache, OF_ENGINES)
        if self.with_logits:
            found[LOGITS] = self.forbid(ops.cast(logits, "float32"), 0)
        return found


def engine_models(
    search: Search, prefill_lengths: Sequence[int], cache_length: int
) -> dict[str, keras.Model]:
    """Returns `decode` and a `prefill_<n>` for each length of a chunk.

    They share the search's weights.

    Raises:
        ValueError: The model cannot be cached, has fewer positions, or has
            attention positions with `steps`.
    """
    model = search.model
    model.check_cacheable(cache_length)
    names = {f"prefill_{n}": n for n in prefill_lengths} | {"decode": 1}
    cache = model.build_cache(1, cache_length)
    for i, block in enumerate(cache["blocks"]):
        if "steps" in block:
            raise ValueError(
                f"Block {i} keeps steps of its tokens in the cache (such as "
                "those of ForgettingBias), and LiteRT-LM keeps keys and values "
                "alone. Use another position in `attention`, or export the "
                "generator with `export_litert`"
            )
    caches = {
        name: tuple(each.shape)
        for name, each in flat(cache, OF_ENGINES).items()
    }
    return {
        name: _model(search, name, count, caches, cache_length)
        for name, count in names.items()
    }


def _model(
    search: Search,
    name: str,
    count: int,
    caches: Mapping[str, tuple[int, ...]],
    length: int,
) -> keras.Model:
    def given(name: str, shape: tuple[int, ...], dtype: str) -> Any:
        return keras.Input(batch_shape=shape, dtype=dtype, name=name)

    inputs = {
        TOKENS: given(TOKENS, (1, count), "int32"),
        PLACES: given(PLACES, (count,), "int32"),
        **{
            each: given(each, shape, "float32")
            for each, shape in caches.items()
        },
    }
    is_step = name == "decode"
    step = EngineStep(search, with_logits=is_step, name="step")
    model = keras.Model(inputs, step(inputs), name=name)
    model.autocast = False
    chunks = functools.partial(_chunks, search, model, length)
    model.own_probes = chunks
    # Of few chunks. The engine reads them for the log-probabilities of texts.
    model.constant_outputs = tuple(caches)
    model.output_scales = functools.partial(
        sizes_of, search.model, lambda: model(next(chunks()))
    )
    return model


def _chunks(
    search: Search, model: keras.Model, length: int
) -> Iterator[dict[str, Any]]:
    """Yields what a model takes, of random ids, to verify exports with.

    A chunk into an empty cache, one after it, padded if it can be, and one in
    the last places, padded beyond the cache, after copies of the tokens so far:
    invented keys and values mean nothing to a large model.
    """
    rng = np.random.default_rng(0)
    count = model.input[TOKENS].shape[1]
    state = {
        name: np.zeros(each.shape, "float32")
        for name, each in model.input.items()
        if name not in (TOKENS, PLACES)
    }
    part = max(count - count // 4, 1)
    for first, real in ((0, count), (count, part), (length - part, part)):
        if first + real > length:
            continue
        ids = rng.integers(1, search.model.vocabulary_size, (1, count), "int32")
        places = np.zeros(count, "int32")
        places[:real] = first + np.arange(real)
        ids[0, real:] = 0
        if first > count:
            copies = np.arange(length) % (count + part)
            state = {name: each[:, :, copies] for name, each in state.items()}
        given = {TOKENS: ids, PLACES: places, **state}
        yield given
        found = model(given)
        state = {name: ops.convert_to_numpy(found[name]) for name in state}
