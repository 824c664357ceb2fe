"""A language model from a checkpoint: texts to texts, and chats."""

import types
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.checkpoints.pretrained_model import origin_in_words
from keras_posenc.checks import check_count, check_positive_int
from keras_posenc.generation.generator import Generator
from keras_posenc.generation.options import SAMPLING, check_ids
from keras_posenc.generation.stopping import Reply, check_stop, cut_at
from keras_posenc.generation.stream import Stream
from keras_posenc.generation.text_steps import text_step_models
from keras_posenc.generation.transformers_search import TransformersSearch
from keras_posenc.text.chat_template import render

# transformers' names of options, by ours.
_NAMES = {
    "max_new_tokens": "max_length",
    "min_new_tokens": "min_length",
    "num_beams": "beams",
    "num_return_sequences": "n_best",
    "eos_token_id": "end_ids",
    "forced_bos_token_id": "prefix_ids",
    "forced_eos_token_id": "forced_end_id",
    "suppress_tokens": "suppress_ids",
}
_OF_BEAMS = ("length_penalty", "early_stopping")
_OPTIONS = (
    *("beams", "n_best", *_OF_BEAMS, *SAMPLING, "repetition_penalty"),
    *("min_length", "end_ids", "prefix_ids", "suppress_ids"),
    *("no_repeat_ngram_size", "forced_end_id", "renormalize_logits"),
)
_OF_IDS = ("end_ids", "prefix_ids", "suppress_ids")
_MOST_KEPT = 8  # generators with other options


@keras.saving.register_keras_serializable(package="keras_posenc")
class PretrainedGenerator(Generator):
    """A `Generator` that keeps what a checkpoint says of generating.

    `load_hugging_face` makes it from a decoder, which continues texts, or from
    an encoder and a decoder, which makes texts of others, such as
    translations. It generates as transformers does with the folder's
    `generation_config.json`, and `chat` writes the next message of a chat by
    the folder's template. It has everything that `Generator` has.

    Args:
        model: As for `Generator`.
        chat_template: The template of chats, in the language Jinja, or None.
        special_tokens: Special tokens by the names that the template has for
            them, such as `bos_token`.
        do_sample: Whether tokens are sampled by default.
        sampling: `temperature`, `top_k`, `top_p` and `min_p`, where sampled.
        beam_options: `length_penalty` and `early_stopping`, where there are
            beams.
        suppress_ids: Ids that are never generated.
        no_repeat_ngram_size: No part of this many tokens comes twice in a
            prompt and what follows it; 0 for any.
        forced_end_id: The last of `max_length` tokens, or None for any.
        early_stopping: With beams: True ends a search once as many sequences
            as beams have ended; "never" only where no other can become better;
            False, if none would be better with its present length. None as
            `beam_options` say.
        renormalize_logits: With beams: whether probabilities sum to 1 again
            once some ids are made impossible.
        max_positions: How many tokens a prompt and what follows it may have
            together; None for no limit but the model's own.
        origin: As for `PretrainedModel`.
        **options: As for `Generator`, where `max_length` is the number of
            tokens that are generated at most, `max_new_tokens` in
            transformers.

    Example:
        >>> import keras_posenc as kp
        >>> model = kp.load_hugging_face("SmolLM2")  # doctest: +SKIP
        >>> model.chat(
        ...     [{"role": "user", "content": "What is the capital of France?"}]
        ... )  # doctest: +SKIP
        'The capital of France is Paris.'
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
        do_sample: bool = False,
        sampling: Mapping[str, Any] | None = None,
        beam_options: Mapping[str, Any] | None = None,
        suppress_ids: Any = (),
        no_repeat_ngram_size: int = 0,
        forced_end_id: int | None = None,
        early_stopping: bool | str | None = None,
        renormalize_logits: bool = False,
        max_positions: int | None = None,
        origin: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.sampling = dict(sampling or {})
        self.beam_options = dict(beam_options or {})
        if do_sample:
            options |= {**self.sampling, **_given(options, SAMPLING)}
        of_beams = {"length_penalty": 0.0, **self.beam_options}
        if options.get("beams", 1) > 1:
            options.setdefault("length_penalty", of_beams["length_penalty"])
        if early_stopping is None:
            early_stopping = of_beams.get("early_stopping", False)
        self._of_search = {
            "suppress_ids": suppress_ids,
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "forced_end_id": forced_end_id,
            "early_stopping": early_stopping,
            "renormalize_logits": renormalize_logits,
            "max_positions": max_positions,
        }
        super().__init__(model, **options)
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self.origin = dict(origin or {})
        if words := origin_in_words(self.origin):
            signature = f"{self.card['signature']} {words}"
            self.card = {**self.card, "signature": signature}
        # Generators with these layers, by their options. Not in a dict of its
        # own, of which Keras would save the layers too.
        self._others = types.SimpleNamespace(by_options={})
        self._is_by_xla = False

    def _make_search(self, model: keras.Model, **options: Any) -> Any:
        return TransformersSearch(model, **options, **self._of_search)

    def compile(
        self, *args: Any, jit_compile: Any = "auto", **kwargs: Any
    ) -> None:
        # Tokenizers cannot be compiled by XLA; what is between them can.
        self._is_by_xla = jit_compile is True
        self._others.by_options.clear()
        super().compile(
            *args,
            jit_compile=False if self._is_by_xla else jit_compile,
            **kwargs,
        )
        for each in (self.from_ids, *self._steps):
            each.compile(jit_compile=jit_compile)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        self._others.by_options.clear()
        super().quantize(*args, **kwargs)

    def with_options(self, **options: Any) -> Self:
        """Returns a generator of the same layers with other options.

        Args:
            **options: `max_new_tokens`; `do_sample`, `temperature`, `top_k`,
                `top_p`, `min_p`; `beams`, `n_best`, `length_penalty`;
                `early_stopping`; `repetition_penalty`,
                `no_repeat_ngram_size`, `renormalize_logits`; `min_new_tokens`;
                `end_ids`, `forced_end_id`, `prefix_ids`, `suppress_ids`. Also
                by the names that they have in transformers, such as
                `num_beams`. Others stay as they are.

        Raises:
            ValueError: An option is not known or invalid, or excludes another.
        """
        if not options:
            return self
        found = self._resolved(options)
        key = tuple(sorted((name, repr(each)) for name, each in found.items()))
        made: dict[Any, Self] = self._others.by_options
        if key not in made:
            if len(made) == _MOST_KEPT:
                del made[next(iter(made))]
            made[key] = type(self)(
                self.model,
                **{
                    **self._own_config(),
                    "source_tokenizer": self.source_tokenizer,
                    "target_tokenizer": self.target_tokenizer,
                    **self.search.options(),
                    **found,
                },
            )
            if self._is_by_xla:
                made[key].compile(jit_compile=True)
        return made[key]

    def _resolved(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns options by the names that the constructor has."""
        if "max_length" in options:
            raise ValueError(
                "`max_length` counts the prompt in transformers, and not here: "
                "give `max_new_tokens`. Received: "
                f"max_length={options['max_length']!r}"
            )
        if "max_new_tokens" in options:
            check_positive_int("max_new_tokens", options["max_new_tokens"])
        found = {_NAMES.get(name, name): options[name] for name in options}
        for name in _OF_IDS:
            # As tuples: an array's `repr` leaves ids out. None is the default.
            if found.get(name) is not None:
                found[name] = check_ids(name, found[name])
        does_sample = found.pop("do_sample", None)
        known = {*_NAMES.values(), *_OPTIONS}
        for name in found:
            if name not in known:
                listed = sorted({*_NAMES, *_OPTIONS, "do_sample"})
                raise ValueError(
                    f"`{name}` is no option of generation. Options are: "
                    f"{', '.join(listed)}. Received: {name}={found[name]!r}"
                )
        given = _given(found, SAMPLING)
        if does_sample not in (None, True, False) or (
            does_sample is False and given
        ):
            also = ", ".join(f"{name}={given[name]!r}" for name in given)
            raise ValueError(
                "`do_sample` must be True or False, and False excludes the "
                f"options of sampling. Received: do_sample={does_sample!r}"
                + f", {also}"
                * bool(also)
            )
        if does_sample or given:
            found |= {**self._sampling(), **given}
        elif does_sample is False or found.get("beams", 1) > 1:
            found |= dict.fromkeys((*SAMPLING, "seed"))
        if does_sample is False or given or does_sample:
            found["seed"] = self.seed if does_sample or given else None
        if "beams" in found:
            of_beams = {
                "length_penalty": 0.0,
                "early_stopping": False,
                "n_best": 1,
            }
            if found["beams"] != 1:
                of_beams = {**of_beams, **self.beam_options}
            found = {**of_beams, **found}
        return found

    def _sampling(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in SAMPLING}
        return {**self.sampling, **_given(own, SAMPLING)}

    def generate(
        self,
        x: Any,
        *,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        batch_size: int = 32,
        **options: Any,
    ) -> Any:
        """Returns the text that follows each prompt, or what it becomes.

        Args:
            x: Texts, or ids `(batch, seq)`, as `predict` takes them.
            stop: Texts that end an output, which is cut before the first one.
            seed: Seed of sampling, for the same outputs at each call.
            batch_size: How many texts are processed at once.
            **options: See `with_options`.

        Returns:
            A list of strings; of lists of strings if `n_best` is above 1. From
            ids an array, int32 `(batch, max_new_tokens)`.

        Raises:
            ValueError: As `predict` and `with_options`; or there is `stop`
                without texts.
        """
        generator = self.with_options(**options)
        stop = check_stop(stop)
        found = generator.predict(
            x, batch_size=batch_size, verbose=0, seed=seed
        )
        if self.target_tokenizer is None:
            if stop:
                raise ValueError(
                    "`stop` must be empty for a generator of ids, which are "
                    f"no texts. Received: stop={stop!r}"
                )
            return found["ids"]
        texts = found["text"]
        cut = [cut_at(stop, text)[0] for text in texts.ravel()]
        return np.array(cut, object).reshape(texts.shape).tolist()

    def predict(
        self,
        x: Any,
        *,
        batch_size: int = 32,
        verbose: Any = "auto",
        seed: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Generates as `Generator.predict` does.

        Args:
            x: As there.
            batch_size: As there.
            verbose: As there.
            seed: Seed of sampling, for the same outputs at each call.
        """
        self._begin_with(seed)
        return super().predict(x, batch_size=batch_size, verbose=verbose)

    def _begin_with(self, seed: Any) -> None:
        """Samples from this seed on."""
        if seed is None:
            return
        check_count("seed", seed)
        if self.search.seed_generator is None:
            raise ValueError(
                "`seed` must be None for a generator that does not sample. "
                "Leave it out, or give do_sample=True to `generate` or "
                f"`with_options`. Received: seed={seed!r}"
            )
        state = self.search.seed_generator.state
        state.assign(ops.array([seed, 0], state.dtype))

    def _ids(self, name: str, x: Any, tokenizer: Any) -> np.ndarray:
        ids = super()._ids(name, x, tokenizer)
        return self._rounded(ids) if name in ("x", "text") else ids

    def _rounded(self, ids: np.ndarray) -> np.ndarray:
        """Pads ids to one of few lengths: each is compiled once."""
        length = rounded_length(ids.shape[1])
        # In front of a prompt padding takes no position, and is never read.
        before, after = length - ids.shape[1], 0
        if self.search.has_encoder:
            before, after = after, before
            try:
                self.model.check_source_length(length)
            except ValueError:  # beyond its table of positions
                return ids
        return np.pad(
            ids, ((0, 0), (before, after)), constant_values=self.model.pad_id
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        **options: Any,
    ) -> str:
        """Returns the next message of a chat.

        Args:
            messages: The chat so far: dicts of `role`, "system", "user",
                "assistant" or "tool", and `content`, a text.
            stop: Texts that end the message, which is cut before the first.
            seed: Seed of sampling, for the same message at each call.
            **options: See `with_options`, such as `max_new_tokens`.

        Raises:
            ImportError: The library `jinja2` is missing.
            ValueError: The checkpoint has no template of chats, or one that
                does not take this chat; the chat has more tokens than the
                checkpoint has positions; an option is invalid.
        """
        return "".join(
            self.stream_chat(messages, stop=stop, seed=seed, **options)
        )

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        **options: Any,
    ) -> Reply:
        """As `chat`, but yields pieces of the text as they are generated.

        Args:
            messages: As for `chat`.
            stop: As for `chat`.
            seed: As for `chat`.
            **options: As for `chat`.

        Returns:
            An iterator of strings. Its attribute `ended` is None while there
            may be more; then whether the message is complete, False for one
            that was cut off at `max_new_tokens`.
        """
        text = self.prompt_of(messages)
        generator = self.with_options(**options)
        return generator._reply(text, check_stop(stop), seed)

    def prompt_of(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Returns a chat as the text that the model continues.

        Args:
            messages: As for `chat`.
        """
        template = self._checked_template()
        return render(template, messages, tokens=self.special_tokens)

    def chat_signatures(self) -> dict[str, keras.Model]:
        """Returns the signatures of a SavedModel for a server of chats.

        `serving_default` turns texts into texts. The others are for a server
        that sends a message while it is generated, and chooses the tokens
        itself: see `Generator.step_signatures`. `prompt` turns `text`, strings
        `(batch,)`, such as `prompt_of` returns, into everything that the first
        step takes; `decode` is a step; `detokenize` turns `ids`, int32 `(batch,
        seq)`, into their `text`, strings `(batch,)`, and `ended`, bool
        `(batch,)`, whether an end symbol is among them.

        Returns:
            A dict of Functional models, for the `signatures` of an export.

        Raises:
            ValueError: The checkpoint has no template of chats.

        Example:
            >>> import keras_posenc as kp
            >>> model = kp.load_hugging_face("SmolLM2")  # doctest: +SKIP
            >>> kp.export_saved_model(
            ...     model, "serving/chat", signatures=model.chat_signatures()
            ... )  # doctest: +SKIP
        """
        self._checked_template()
        return {
            "serving_default": self.offered_signatures()["serving_default"],
            **text_step_models(self.search, self.name, self.source_tokenizer),
        }

    def _checked_template(self) -> str:
        """Returns the template, or raises `ValueError` without chats."""
        if self.chat_template is None:
            raise ValueError(
                f"Model '{self.name}' has no template of chats. "
                "`generate` continues texts. If it was trained on chats, set "
                "the attribute `chat_template` to their template, in Jinja"
            )
        if self.source_tokenizer is None:
            raise ValueError(
                f"Model '{self.name}' takes ids, and a chat is text: load it "
                "without from_ids=True"
            )
        return self.chat_template

    def stream(self, text: Any, *, noise: Any = None) -> Stream:
        """Generates for one text, as `Generator.stream` does.

        Args:
            text: As there.
            noise: As there.
        """
        self._check_streams()
        return super().stream(text, noise=noise)

    def _check_streams(self) -> None:
        """Raises `ValueError` for options that single steps do not have."""
        if self.search.rules:
            raise ValueError(
                "A stream has neither `no_repeat_ngram_size` nor "
                "`forced_end_id`. Give no_repeat_ngram_size=0, "
                "forced_end_id=None. Received: "
                f"no_repeat_ngram_size={self.search.no_repeat_ngram_size}, "
                f"forced_end_id={self.search.forced_end_id}"
            )
        if self.search.beams > 1:
            raise ValueError(
                "A stream, such as that of a chat, generates one token at a "
                "time. Received: a model with "
                f"beams={self.search.beams}; give beams=1"
            )

    def _reply(self, text: str, stop: Sequence[str], seed: Any) -> Reply:
        self._check_streams()
        self._begin_with(seed)
        # The template has the start of the text; no second one comes before.
        tokenizer = self.source_tokenizer
        ids = tokenizer.split(tokenizer._as_strings([text])).numpy()
        self.search.check_inputs(ids)
        stream = Stream(
            self.search,
            self._steps,
            self._rounded(ids),
            texts=self._texts,
            settled=self._settled,
        )
        return Reply(stream, stop)

    def _own_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "chat_template": self.chat_template,
            "special_tokens": self.special_tokens,
            "sampling": self.sampling,
            "beam_options": self.beam_options,
            "origin": self.origin,
        }

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._own_config()}


def rounded_length(length: int) -> int:
    """Returns the least of 16, 20, 24, 28, 32, 40, 48 … from `length` on."""
    step = 4
    while 8 * step < length:
        step *= 2
    return max(16, -(-length // step) * step)


def _given(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        name: options[name] for name in names if options.get(name) is not None
    }
