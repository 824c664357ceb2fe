"""A language model from a checkpoint: texts to texts, and chats."""

import contextlib
import dataclasses
import threading
import types
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.checkpoints.pretrained_model import (
    origin_in_words,
    warn_of_cut,
)
from keras_posenc.checks import check_count, check_positive_int
from keras_posenc.generation.decoding import (
    SAMPLING,
    Decoding,
    TransformersDecoding,
    is_zero,
    takes,
)
from keras_posenc.generation.generator import Generator, default_of
from keras_posenc.generation.sampling import Sampling
from keras_posenc.generation.step import First, Step, tracing_quietly
from keras_posenc.generation.stream import (
    Reply,
    Stream,
    check_stop,
    cut_at,
    noise_of,
    tokens_of,
)
from keras_posenc.text._tokenizer import reporting_cuts
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
# Options that are not for `with_options`, or have another name there.
_FIXED = ("seed", "max_length", "start_id", "max_positions")
_KNOWN = {x.name for x in dataclasses.fields(TransformersDecoding)}
_KNOWN = {*_KNOWN, *_NAMES, "do_sample"}.difference(_FIXED)
_ONE_BEAM = {"length_penalty": 0.0, "early_stopping": False, "n_best": 1}
_DRAWN = {"temperature": 1.0}  # where nothing says how
_OF_CALLS = ("stop", "seed")  # of `generate` and `chat`
_MOST_KEPT = 8  # generators with other options


@keras.saving.register_keras_serializable(package="keras_posenc")
@takes(TransformersDecoding)
class PretrainedGenerator(Generator):
    """A `Generator` that keeps what a checkpoint says of generating.

    >>> import keras_posenc as kp
    >>> model = kp.PretrainedGenerator(  # load_hugging_face makes others
    ...     kp.TransformerDecoderModel(
    ...         260, d_model=8, num_layers=1, num_heads=2,
    ...         intermediate_dim=8,
    ...     ),
    ...     source_tokenizer=kp.ByteTokenizer(add_end=False),
    ...     chat_template="<user>{{ messages[-1].content }}<model>",
    ... )
    >>> chat = [{"role": "user", "content": "Hi"}]
    >>> model.prompt_of(chat)
    '<user>Hi<model>'
    >>> reply = model.stream_chat(chat, max_new_tokens=3)
    >>> "".join(reply) == model.chat(chat, max_new_tokens=3)
    True

    `load_hugging_face` makes it from a decoder, which continues texts, or from
    an encoder and a decoder, which makes texts of others, such as
    translations. It generates as transformers does with the folder's
    `generation_config.json`, and `chat` writes the next message of a chat by
    the folder's template. It has everything that `Generator` has, and warns of
    texts that the tokenizer cuts, as at the end of a table of positions.

    Args:
        model: As for `Generator`.
        chat_template: The template of chats, in the language Jinja, or None.
        special_tokens: Special tokens by the names that the template has for
            them, such as `bos_token`.
        do_sample: Whether tokens are sampled by default.
        sampling: `temperature`, `top_k`, `top_p` and `min_p`, where sampled;
            by default a temperature of 1.
        beam_options: `length_penalty` and `early_stopping`, where there are
            beams.
        origin: As for `PretrainedModel`.
        checkpoint: As for `PretrainedModel`.
        source_tokenizer: As for `Generator`.
        target_tokenizer: As for `Generator`.
        name: Name of the model.
        trainable: Whether its weights train.
        **options: See `TransformersDecoding`.
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
        origin: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.sampling = dict(sampling or {})
        self.beam_options = dict(beam_options or {})
        if do_sample:
            options |= _DRAWN | self.sampling | _given(options, SAMPLING)
        if options.get("beams", 1) > 1:
            most = self.beam_options.get("length_penalty", 0.0)
            options.setdefault("length_penalty", most)
        if options.get("early_stopping") is None:
            stops = self.beam_options.get("early_stopping", False)
            options["early_stopping"] = stops
        super().__init__(model, **options)
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})
        self.origin = dict(origin or {})
        self.checkpoint = dict(checkpoint or {})
        if words := origin_in_words(self.origin):
            self.card = f"{self.card} {words}"
        # Generators with these layers, by their options. Not in a dict of its
        # own, of which Keras would save the layers too.
        self._others = types.SimpleNamespace(
            by_options={},
            steps={},
            lock=threading.RLock(),
            drawing=threading.RLock(),
        )
        self._jit_compile: Any = None

    def compile(
        self, *args: Any, jit_compile: Any = "auto", **kwargs: Any
    ) -> None:
        # Tokenizers cannot be compiled by XLA; what is between them can.
        self._jit_compile = jit_compile
        self._others.by_options.clear()
        self._others.steps = {}  # other generators keep theirs
        super().compile(
            *args,
            jit_compile=False if jit_compile is True else jit_compile,
            **kwargs,
        )
        self.from_ids.compile(jit_compile=jit_compile)

    def forget_traces(self) -> None:
        self._others.by_options.clear()
        super().forget_traces()

    def _first_and_step(self) -> tuple[First, Step]:
        """Those of all generators of these layers that step alike."""
        return self._step_of(First), self._step_of(Step)

    def _step_of(self, kind: Any) -> Any:
        made, key = self._others.steps, kind.key(self.search)
        with self._others.lock:
            if key not in made:
                if len(made) == 2 * _MOST_KEPT:
                    del made[next(iter(made))]
                made[key] = kind(self.search)
                if self._jit_compile is not None:
                    made[key].compile(jit_compile=self._jit_compile)
            return made[key]

    def with_options(self, **options: Any) -> Self:
        """Returns a generator of the same layers with other options.

        Args:
            **options: `max_new_tokens`; `do_sample`, `temperature` (0 is
                `do_sample=False`), `top_k`, `top_p`, `min_p`; `beams`,
                `n_best`, `length_penalty`; `early_stopping`;
                `repetition_penalty`,
                `no_repeat_ngram_size`, `renormalize_logits`; `min_new_tokens`;
                `end_ids`, `forced_end_id`, `prefix_ids`, `suppress_ids`. Also
                by the names that they have in transformers, such as
                `num_beams`. Others stay as they are.

        Raises:
            ValueError: An option is not known or invalid, or excludes another.
        """
        if not options:
            return self
        decoding = self._resolved(options)
        made: dict[Any, Self] = self._others.by_options
        with self._others.lock:
            if decoding not in made:
                if len(made) == _MOST_KEPT:
                    del made[next(iter(made))]
                new = type(self)(
                    self.model,
                    **{
                        **self._own_config(),
                        "source_tokenizer": self.source_tokenizer,
                        "target_tokenizer": self.target_tokenizer,
                        **dataclasses.asdict(decoding),
                    },
                )
                if self._jit_compile is True:
                    new.compile(jit_compile=True)
                new._others.steps = self._others.steps
                new._others.lock = self._others.lock
                made[decoding] = new
            return made[decoding]

    def _resolved(self, options: Mapping[str, Any]) -> Decoding:
        """Returns what the search has with these options."""
        if "max_new_tokens" in options:
            self._check_new_tokens(options["max_new_tokens"])
        for name, value in options.items():
            if name not in _KNOWN:
                raise ValueError(
                    f"`{name}` is no option of generation. Options are: "
                    f"{', '.join(sorted(_KNOWN))}; and, of a call of "
                    "`generate`, `chat` or `stream_chat`, "
                    f"{' and '.join(_OF_CALLS)}. Received: {name}={value!r}"
                )
        found = {_NAMES.get(name, name): options[name] for name in options}
        does_sample = found.pop("do_sample", None)
        if is_zero(found.get("temperature")) and does_sample in (None, True):
            # What else restricts samples never excludes the most likely token.
            del found["temperature"]
            Sampling(**_given(found, SAMPLING))
            found |= dict.fromkeys(SAMPLING)
            does_sample = False
        given = _given(found, SAMPLING)
        if does_sample not in (None, True, False) or (
            does_sample is False and given
        ):
            given = {"do_sample": does_sample, **given}
            received = ", ".join(f"{name}={given[name]!r}" for name in given)
            raise ValueError(
                "`do_sample` must be True or False, and False excludes the "
                f"options of sampling. Received: {received}"
            )
        if does_sample or given:
            own = {**self.sampling}
            if self.is_drawn:
                own |= _given(vars(self.search.decoding), SAMPLING)
            found |= {**(_DRAWN if does_sample else {}), **own, **given}
        elif does_sample is False or found.get("beams", 1) > 1:
            found |= dict.fromkeys((*SAMPLING, "seed"))
        if "beams" in found:
            own = self.beam_options if found["beams"] != 1 else {}
            found = {**_ONE_BEAM, **own, **found}
        if found.get("end_ids", ()) is None:
            found["end_ids"] = default_of("end_ids", self.target_tokenizer)
        if found.get("early_stopping", False) is None:
            stops = self.beam_options.get("early_stopping", False)
            found["early_stopping"] = stops
        return dataclasses.replace(self.search.decoding, **found)

    def _check_new_tokens(self, count: Any) -> None:
        """Raises `ValueError` for more new tokens than there are positions."""
        check_positive_int("max_new_tokens", count)
        limits = [self.model.max_positions or count]
        if not self.search.has_encoder and self.max_positions:
            limits.append(self.max_positions - 1)  # a prompt has one
        if count > min(limits):
            raise ValueError(
                f"`max_new_tokens` must be at most {min(limits)}, as the "
                "checkpoint has positions for no more. Received: "
                f"max_new_tokens={count}"
            )

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
            x: A list or an array of texts, `(batch,)`; or, for a model without
                tokenizers, integers `(batch, seq)`, padded with its id of
                padding.
            stop: Texts that end an output, which is cut before the first one.
            seed: Seed of sampling, an integer of at least 0, for the same
                outputs at each call.
            batch_size: How many texts are processed at once.
            **options: See `with_options`.

        Returns:
            A list of `batch` strings; of lists of `n_best` strings if that is
            above 1. From ids an array, int32 `(batch, max_new_tokens)`, or
            `(batch, n_best, max_new_tokens)`, padded with -1.

        Raises:
            ValueError: `x` is none of these, or a prompt has too many tokens;
                an option is invalid, or excludes another; `seed` is given and
                nothing is sampled; there is `stop` and a model of ids; or the
                model's logits are NaN.
        """
        generator = self.with_options(**options)
        stop = check_stop(stop)
        # Steps in Python are as fast there, and traced less often.
        if (
            keras.backend.backend() == "tensorflow"
            and generator.beams == 1
            and generator._jit_compile is not True
        ):
            found = generator._by_steps(x, batch_size, seed)
        else:
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

    def _by_steps(self, x: Any, size: Any, seed: Any) -> dict[str, np.ndarray]:
        """Returns `ids`, and their `text`, as `predict` does."""
        check_positive_int("batch_size", size)
        x = self._ids("x", self._by_name("x", x), self.source_tokenizer)
        ids = np.full((len(x), self.max_length), self.search.pad_id, "int32")
        with self._drawing_alone():
            self._begin_with(seed)
            for start in range(0, len(x), size):
                rows = slice(start, start + size)
                found = tokens_of(
                    self.search,
                    self._first_and_step(),
                    x[rows],
                    noise_of(self.search, len(x[rows])),
                )
                for column, (token, _) in enumerate(found):
                    ids[rows, column] = token
        if self.detokenize is None:
            return {"ids": ids}
        return {"ids": ids, "text": self._texts(ids)}

    def predict(
        self,
        x: Any,
        *,
        batch_size: int = 32,
        verbose: Any = "auto",
        seed: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Generates as `Generator.predict` does, with a seed.

        `seed`, an integer of at least 0, makes samples the same at each call.
        """
        cut: list[int] = []  # of a dataset: `_ids` reports others
        with self._drawing_alone():
            self._begin_with(seed)
            with tracing_quietly(), reporting_cuts(cut.append):
                found = super().predict(
                    x, batch_size=batch_size, verbose=verbose
                )
        if sum(cut):
            warn_of_cut(self.source_tokenizer, sum(cut), None)
        return found

    def _drawing_alone(self) -> contextlib.AbstractContextManager[Any]:
        """Keeps other threads from drawing between a seed and its numbers."""
        if self.search.seed_generator is None:
            return contextlib.nullcontext()
        lock: threading.RLock = self._others.drawing
        return lock

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
        cut: list[int] = []
        with reporting_cuts(cut.append):
            ids = super()._ids(name, x, tokenizer)
        if sum(cut):
            warn_of_cut(tokenizer, sum(cut), len(ids))
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
            seed: Seed of sampling, an integer of at least 0, for the same
                message at each call.
            **options: See `with_options`, such as `max_new_tokens`; not beams.

        Returns:
            The content of the message.

        Raises:
            ImportError: The library `jinja2` is missing.
            ValueError: As in `generate`; or the messages are no chat, the
                checkpoint has no template that takes them, or there are beams.
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
        """Returns the next message of a chat in pieces, as it is generated.

        Arguments and errors are those of `chat`; NaN is reported where it
        comes.

        Returns:
            An iterator of strings, whole characters, which together are the
            message. Its attribute `ended` is None while there may be more; then
            whether the message is complete, False for one that was cut off at
            `max_new_tokens`.
        """
        text = self.prompt_of(messages)
        generator = self.with_options(**options)
        return generator._reply(text, check_stop(stop), seed)

    def prompt_of(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Returns a chat as the text that the model continues.

        Arguments and errors are those of `chat`.
        """
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
        return render(self.chat_template, messages, tokens=self.special_tokens)

    def _reply(self, text: str, stop: Sequence[str], seed: Any) -> Reply:
        self._check_streams()
        # The template has the start of the text; no second one comes before.
        tokenizer = self.source_tokenizer
        ids = tokenizer.split(tokenizer._as_strings([text])).numpy()
        self.search.check_inputs(ids)
        with self._drawing_alone():
            self._begin_with(seed)
            stream = Stream(  # draws its numbers now
                self.search,
                self._first_and_step(),
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
            "checkpoint": self.checkpoint,
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
