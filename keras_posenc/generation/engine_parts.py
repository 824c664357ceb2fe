"""The models and settings that a LiteRT-LM package holds of a generator."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import as_integer
from keras_posenc.generation.engine_steps import engine_models
from keras_posenc.generation.generated import log_probabilities
from keras_posenc.generation.likelihoods import plain_search, sampler

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
    """The models of a package, and the model's own outputs to compare.

    `sampling` has `temperature`, `top_k` and `top_p`, or is None; `template` is
    that of chats, and `render` returns the text of a list of messages.
    """

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
        """The models `decode`, and a `prefill_<n>` for each length.

        They are traced at the first use, which takes long for large models.
        """
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

    def continued(self, ids: Sequence[int], count: int) -> list[int]:
        """Returns the most likely `count` next tokens, up to an end."""
        found = plain_search(self.search, count)(np.array([ids], "int32"))
        (row,) = ops.convert_to_numpy(found["ids"]).tolist()
        ends = [i for i, each in enumerate(row) if each in self.end_ids]
        return row[: ends[0] + 1] if ends else row

    def logs(
        self, ids: Sequence[int], target: Sequence[int]
    ) -> tuple[np.ndarray, float]:
        """Returns log-probabilities where tokens of a target are next.

        They are float32 `(target, vocabulary)`; and the size of the logits.
        """
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
    """Returns the parts of a package of a `Generator` of a decoder.

    Prompts are read in chunks of `prefill_lengths`; None for those of 32, 128
    and 512 that fit into the cache, which has `cache_length` tokens.

    Raises:
        ValueError: The engine cannot run it, or lengths do not fit.
    """
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
            "`cache_length` (--cache-length) must be an integer from 2 on"
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
            f"cache_length={length}. Received: "
            f"prefill_lengths={prefill_lengths!r}"
        )
    return sorted(sizes), length
