"""The parts of a package for LiteRT-LM's engine."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import as_integer
from keras_posenc.generation.generated import log_probabilities, refusable
from keras_posenc.generation.likelihoods import sampler
from keras_posenc.generation.search import Search, sizes_of
from keras_posenc.generation.step import OF_ENGINES, flat, nested
from keras_posenc.ops.named import NamedArguments
from keras_posenc.transformer._input_position import table_of

TOKENS, PLACES, LOGITS = "tokens", "input_pos", "logits"


class EngineStep(NamedArguments, keras.layers.Layer):
    """Reads a chunk of one sequence, after what its caches hold.

    A chunk that is not full ends with tokens 0 at place 0, which may be beyond
    the caches. It takes `tokens`, int32 `(1, n)`; `input_pos`, int32 `(n,)`;
    and caches, float32 `(1, heads, length, head_dim)`. It returns the caches,
    and `with_logits` also `logits`, float32 `(1, n, vocabulary)`.
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
    """Returns `decode` and a `prefill_<n>` for each length of a chunk."""
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


# Sizes of the chunks in which prompts are read.
_PREFILL = (32, 128, 512)

# Options that a package cannot hold, with the values that they must have.
_NEUTRAL: Mapping[str, Any] = {
    "beams": 1,
    "n_best": 1,
    "repetition_penalty": 1.0,
    "min_length": 0,
    "prefix_ids": (),
    "min_p": None,
    "no_repeat_ngram_size": 0,
    "forced_end_id": None,
}


@dataclasses.dataclass(frozen=True)
class EngineParts:
    """The models of a package, and the model's own outputs to compare."""

    cache_length: int
    prefill_lengths: Sequence[int]
    search: Any
    tokenizer: Any
    sampling: Mapping[str, Any] | None
    template: str | None
    special_tokens: Mapping[str, str]
    render: Callable[[Sequence[Mapping[str, str]]], str] | None

    @functools.cached_property
    def models(self) -> dict[str, keras.Model]:
        """The models `decode`, and a `prefill_<n>` for each length."""
        return engine_models(
            self.search, self.prefill_lengths, self.cache_length
        )

    @property
    def vocabulary(self) -> int:
        """How many ids the model takes."""
        return int(self.search.model.vocabulary_size)

    @property
    def end_ids(self) -> Sequence[int]:
        """The ids that end a text."""
        return tuple(self.search.decoding.end_ids)

    @property
    def start_id(self) -> int | None:
        """The id that the tokenizer puts before texts, and the engine not."""
        return self.tokenizer.start_id if self.tokenizer.frame[0] else None

    def tokenizer_json(self) -> dict[str, Any]:
        """Returns the tokenizer as a `tokenizer.json`."""
        found: dict[str, Any] = self.tokenizer.tokenizer_json()
        return found

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts, without what comes before and after."""
        given = self.tokenizer._as_strings(list(texts))
        found: list[list[int]] = self.tokenizer.split(given).to_list()
        return found

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of ids, up to the first end."""
        kept = list(itertools.takewhile(lambda x: x not in self.end_ids, ids))
        if not kept:
            return ""
        (text,) = self.tokenizer.detokenize([kept]).numpy()
        return str(text.decode())

    def logs(
        self, ids: Sequence[int], target: Sequence[int]
    ) -> tuple[np.ndarray, float]:
        """Returns log-probabilities of tokens, and the size of the logits."""
        given = np.array([[*ids, *target]], "int32")
        logits = ops.cast(self.search.model(given)[0], "float32")
        size = float(ops.convert_to_numpy(ops.max(ops.absolute(logits))))
        allowed = self.search.allowed().forbid(logits[len(ids) - 1 : -1], 0)
        logs: np.ndarray = ops.convert_to_numpy(log_probabilities(allowed))
        return logs, max(size, 1.0)

    def sampler(self, count: int) -> Callable[[Any, Any], Any]:
        """Returns what samples the model's next tokens: see `sampler`."""
        return sampler(self.search, count)


def engine_parts(
    generator: Any, prefill_lengths: Any, cache_length: Any
) -> EngineParts:
    """Returns the parts of a package of a `Generator` of a decoder."""
    search, model = generator.search, generator.model
    if search.has_encoder:
        raise ValueError(
            "LiteRT-LM runs decoders alone. Received: a generator of "
            f"{type(model).__name__} '{model.name}', which has an encoder. "
            "kp.export_litert exports it with its loop"
        )
    if generator.source_tokenizer is None:
        raise ValueError(
            f"Generator '{generator.name}' takes ids, and LiteRT-LM takes "
            "texts: give it its tokenizer, `source_tokenizer=...`, or load the "
            "checkpoint without from_ids=True"
        )
    if not search.decoding.end_ids:
        raise ValueError(
            "LiteRT-LM needs a token that ends a text. Received: a generator "
            "with end_ids=(). Give the id of one, such as `end_ids=3`"
        )
    dtype = model.decoder.compute_dtype
    if dtype != "float32":
        raise ValueError(
            "A LiteRT-LM package is made of a float32 model. Received: "
            f"generator '{generator.name}' of {dtype}. Load it with "
            "dtype='float32'"
        )
    decoding = search.decoding
    for name, neutral in _NEUTRAL.items():
        value = getattr(decoding, name, neutral)
        if value != neutral:
            raise ValueError(
                f"LiteRT-LM packages hold no `{name}`. Received: a generator "
                f"with {name}={value!r}. Make one with {name}={neutral!r}; an "
                "application may give the engine its own options"
            )
    sizes = _check_lengths(search, prefill_lengths, cache_length)
    sampling = None
    if decoding.draw is not None:
        names = ("temperature", "top_k", "top_p")
        sampling = {name: getattr(decoding, name) for name in names}
    return EngineParts(
        prefill_lengths=sizes[0],
        cache_length=sizes[1],
        search=search,
        tokenizer=generator.source_tokenizer,
        sampling=sampling,
        template=getattr(generator, "chat_template", None),
        special_tokens=getattr(generator, "special_tokens", {}),
        render=getattr(generator, "prompt_of", None),
    )


def _check_lengths(
    search: Any, prefill_lengths: Any, cache_length: Any
) -> tuple[list[int], int]:
    limits = (
        search.model.max_positions,
        getattr(search.decoding, "max_positions", None),
    )
    most = min((each for each in limits if each is not None), default=None)
    length = as_integer(cache_length)
    if length is None or length < 2 or length > (most or length):
        raise ValueError(
            "`cache_length` must be an integer from 2 on"
            + f", up to the model's {most} positions" * (most is not None)
            + f". Received: cache_length={cache_length!r}"
        )
    given = prefill_lengths
    if given is None:
        given = [x for x in _PREFILL if x <= length] or [length // 2]
    if not isinstance(given, list | tuple) or not given:
        given = [given]
    sizes = [as_integer(each) or 0 for each in given]
    if min(sizes) < 1 or max(sizes) > length or len({*sizes}) < len(sizes):
        raise ValueError(
            "`prefill_lengths` must be different integers from 1 to "
            f"`cache_length={length}`. Received: "
            f"prefill_lengths={prefill_lengths!r}"
        )
    return sorted(sizes), length
