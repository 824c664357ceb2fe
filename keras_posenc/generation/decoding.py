"""The options of decoding: how tokens are chosen, and when a text ends."""

import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Callable
from typing import Any, ClassVar, Self

import keras

from keras_posenc.checks import (
    check_bool,
    check_count,
    check_index,
    check_integer,
    check_not_negative,
    check_positive,
    check_positive_int,
    is_number,
)
from keras_posenc.generation.sampling import Sampling, check_temperature

# If any of these is given, tokens are sampled.
SAMPLING = ("temperature", "top_k", "top_p", "min_p")


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How tokens are chosen, and when a text ends.

    Args:
        max_length: How many tokens are generated at most, the end symbol and
            the prefix included.
        beams: How many partial sequences are kept at each step; 1 takes the
            most likely token each time.
        n_best: How many sequences are returned for each text, up to `beams`.
        length_penalty: The power of a sequence's length that divides its score
            among beams, at least 0. Of n tokens it is (5 + n) / 6, as in Wu et
            al. 2016, who use 0.6; for a checkpoint n, as in transformers.
        temperature: If this or one of the next three is given, tokens are
            sampled: see `Sampling`. 0 takes the most likely token each time,
            whatever the next three are.
        top_k: Samples among this number of the most likely tokens.
        top_p: Samples among the fewest tokens with this probability together.
        min_p: Samples among tokens with at least this share of the most likely
            token's probability.
        seed: Seed of sampling: two generators with one seed sample the same
            sequences, call by call.
        repetition_penalty: Above 1, makes tokens that occurred less likely.
        min_length: How many tokens at least come before an end symbol, those
            of the prefix included.
        start_id: The first id of a `Transformer`'s targets; for a decoder
            alone, of an empty prompt only. By default the target tokenizer's.
        end_ids: The id, or several, that end a sequence; by default the target
            tokenizer's.
        prefix_ids: The ids that each generated sequence starts with: for
            example that of a language. They have no score.

    Raises:
        ValueError: An invalid option, or two that exclude each other.
    """

    max_length: int = 64
    beams: int = 1
    n_best: int = 1
    length_penalty: float = 0.0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float = 1.0
    min_length: int = 0
    start_id: int | None = None
    end_ids: Any = None
    prefix_ids: Any = None

    # Whether the start symbol may be generated, and be an end symbol too.
    may_repeat_start: ClassVar[bool] = False
    # Whether beams may be ranked by likelihoods with a penalty of repetition.
    may_penalize_beams: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("max_length", "beams", "n_best"):
            self._keep(name, check_positive_int)
        if self.n_best > self.beams:
            raise ValueError(
                "`n_best` must be at most the number of beams, "
                f"{self.beams}. Received: n_best={self.n_best}"
            )
        self._keep("length_penalty", check_not_negative)
        self._keep("repetition_penalty", check_positive)
        for name in SAMPLING:  # a key of dicts: a NumPy array is none
            if hasattr(value := getattr(self, name), "item"):
                object.__setattr__(self, name, value.item())
        for name in ("seed", "start_id"):
            if getattr(self, name) is not None:
                self._keep(name, check_integer)
        for name in ("end_ids", "prefix_ids"):
            self._keep(name, check_ids)
        self._check_sampling()
        if self.length_penalty and self.beams == 1:
            raise ValueError(
                "`length_penalty` ranks beams, and there is only one. "
                f"Received: length_penalty={self.length_penalty}, beams=1"
            )
        if self.start_id in self.end_ids and not self.may_repeat_start:
            raise ValueError(
                "`start_id` must not be one of `end_ids`: a sequence would end "
                f"where it starts. Received: start_id={self.start_id}, "
                f"end_ids={self.end_ids}"
            )
        if len(self.prefix_ids) >= self.max_length:
            raise ValueError(
                "`prefix_ids` must be fewer than `max_length`, which counts "
                f"them. Received: {len(self.prefix_ids)} prefix_ids, "
                f"max_length={self.max_length}"
            )
        if ends := {*self.prefix_ids}.intersection(self.end_ids):
            raise ValueError(
                "`prefix_ids` must contain none of `end_ids`, which end a "
                f"sequence. Received: {min(ends)} in prefix_ids="
                f"{self.prefix_ids} and in end_ids={self.end_ids}"
            )
        self._keep("min_length", check_integer)
        if not 0 <= self.min_length < self.max_length:
            raise ValueError(
                "`min_length` must be an integer in [0, max_length), with "
                f"max_length={self.max_length}. Received: "
                f"min_length={self.min_length!r}"
            )

    def _keep(self, name: str, check: Callable[[str, Any], Any]) -> None:
        """Replaces an option by what its check returns: Python's own types."""
        object.__setattr__(self, name, check(name, getattr(self, name)))

    @functools.cached_property
    def draw(self) -> Sampling | None:
        """What restricts samples; None where no tokens are sampled."""
        given = {name: getattr(self, name) for name in SAMPLING}
        given = {name: x for name, x in given.items() if x is not None}
        if is_zero(self.temperature):
            # What else restricts samples never excludes the likeliest token.
            Sampling(**{**given, "temperature": 1.0})
            return None
        if self.temperature is not None:
            check_temperature(
                self.temperature, "0, for the most likely token each time, or "
            )
        return Sampling(**given) if given else None

    def _check_sampling(self) -> None:
        """Raises `ValueError` for options that exclude each other."""
        if self.draw is None and self.seed is not None:
            raise ValueError(
                "`seed` is an option of sampling: give one of "
                f"{', '.join(SAMPLING)} too, and no temperature of 0. "
                f"Received: seed={self.seed!r}"
            )
        if self.beams == 1:
            return
        if self.draw is not None:
            name = next(x for x in SAMPLING if getattr(self, x) is not None)
            raise ValueError(
                f"`{name}` is an option of sampling, which generates one token "
                "at a time and cannot be used with beams. Received: "
                f"{name}={getattr(self, name)!r}, beams={self.beams}"
            )
        if self.repetition_penalty != 1 and not self.may_penalize_beams:
            raise ValueError(
                "`repetition_penalty` cannot be used with beams, which are "
                "ranked by the model's likelihoods. Give beams=1, or "
                "repetition_penalty=1. Received: repetition_penalty="
                f"{self.repetition_penalty}, beams={self.beams}"
            )

    def check_for(self, vocabulary: int, pad_id: int) -> None:
        """Raises `ValueError` for what a model of these ids cannot generate."""
        if self.beams > vocabulary:
            raise ValueError(
                "`beams` must be at most the number of ids, "
                f"{vocabulary}. Received: beams={self.beams}"
            )
        start = () if self.start_id is None else (self.start_id,)
        for name, ids in (
            ("start_id", start),
            ("end_ids", self.end_ids),
            ("prefix_ids", self.prefix_ids),
        ):
            for each in ids:
                if not 0 <= each < vocabulary or each == pad_id:
                    raise ValueError(
                        f"`{name}` must be of the model's ids, "
                        f"{1 if pad_id == 0 else 0} to {vocabulary - 1}; "
                        f"{pad_id} is padding. Received: {name}="
                        f"{each if name == 'start_id' else ids}"
                    )

    def check_prompt(self, tokens: int) -> None:
        """Raises `ValueError` for a prompt that nothing fits after."""

    @property
    def longest_prompt(self) -> int | None:
        """How many tokens a prompt may have; None for as many as the model."""
        return None

    @property
    def room(self) -> int:
        """How many tokens are generated at most after a prefix."""
        return self.max_length - len(self.prefix_ids)

    @property
    def least(self) -> int:
        """How many tokens at least come between a prefix and an end symbol."""
        return max(0, self.min_length - len(self.prefix_ids))

    @property
    def forbidden_ids(self) -> tuple[int, ...]:
        """Ids that are never generated."""
        return () if self.start_id is None else (self.start_id,)

    @property
    def removed_ids(self) -> tuple[int, ...]:
        """Ids that are removed at the end of a prompt: it continues."""
        return tuple(self.end_ids)

    def get_config(self) -> dict[str, Any]:
        """Returns the options, as Keras saves them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the options of a config."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_posenc")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformersDecoding(Decoding):
    """Decoding as transformers' `generate` does it.

    Unlike in `Decoding`, the start symbol may be generated, and may be an end
    symbol too; an end symbol after a prompt is a part of it; beams are
    `TransformersBeams`; and a prompt may have no more tokens than the
    checkpoint has positions.

    Args:
        suppress_ids: Ids that are never generated.
        no_repeat_ngram_size: No part of this many tokens comes twice in a
            prompt and what follows it; 0 for any.
        forced_end_id: The last of `max_length` tokens, or None for any.
        early_stopping: With beams: True ends a search once as many sequences
            as beams have ended; "never" only where no other can become better;
            False, if none would be better with its present length. Of a
            `PretrainedGenerator` by default what `beam_options` say.
        renormalize_logits: With beams: whether probabilities sum to 1 again
            once some ids are made impossible.
        max_positions: How many tokens a prompt and what follows it may have
            together; None for no limit but the model's own.
    """

    suppress_ids: Any = ()
    no_repeat_ngram_size: int = 0
    forced_end_id: int | None = None
    early_stopping: bool | str = False
    renormalize_logits: bool = False
    max_positions: int | None = None

    may_repeat_start: ClassVar[bool] = True
    may_penalize_beams: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("renormalize_logits", check_bool)
        self._keep("suppress_ids", check_ids)
        self._keep("no_repeat_ngram_size", check_count)
        if self.early_stopping not in (True, False, "never"):
            raise ValueError(
                "`early_stopping` must be True, False or 'never'. Received: "
                f"early_stopping={self.early_stopping!r}"
            )

    def check_for(self, vocabulary: int, pad_id: int) -> None:
        super().check_for(vocabulary, pad_id)
        for each in self.suppress_ids:
            check_index("suppress_ids", each, vocabulary)
        if self.forced_end_id is not None:
            check_index("forced_end_id", self.forced_end_id, vocabulary)

    def check_prompt(self, tokens: int) -> None:
        most = self.max_positions
        if most is None:
            return
        if tokens >= most:
            raise ValueError(
                f"The prompt has {tokens} tokens, and nothing fits after it "
                f"into the {most} positions of the checkpoint. Shorten it to "
                f"at most {most - 1}; of a chat, leave out the first messages"
            )
        if tokens + self.max_length > most:
            raise ValueError(
                f"The prompt has {tokens} tokens, and {self.max_length} more "
                f"(`max_new_tokens`) exceed the {most} positions of the "
                "checkpoint. Shorten it, or give `max_new_tokens` of at most "
                f"{most - tokens}"
            )

    @property
    def longest_prompt(self) -> int | None:
        most = self.max_positions
        return None if most is None else most - self.max_length

    @property
    def forbidden_ids(self) -> tuple[int, ...]:
        return tuple(self.suppress_ids)

    @property
    def removed_ids(self) -> tuple[int, ...]:
        return ()


def takes(kind: type[Decoding]) -> Callable[[Any], Any]:
    """Completes a class whose constructor takes `**options` of a `Decoding`.

    Its signature then lists them, with their defaults, and so does its
    docstring in place of `**options`; and they are attributes.
    """

    def complete(cls: Any) -> Any:
        init = cls.__init__
        own = inspect.signature(init)
        options = inspect.signature(kind).parameters.values()
        inherited = inspect.signature(cls.__mro__[1].__init__).parameters
        named = {
            each.name: each
            for each in (
                *own.parameters.values(),
                *options,
                *inherited.values(),
            )
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        }
        init.__signature__ = own.replace(parameters=[*named.values()])
        cls.decoding_kind = kind
        for each in dataclasses.fields(kind):
            of = operator.attrgetter(f"search.decoding.{each.name}")
            setattr(cls, each.name, property(of))
        if cls.__doc__:  # not under `python -OO`
            cls.__doc__ = re.sub(
                r"(?m)^    \*\*options:.*\n(?: {5,}.*\n)*",
                lambda _: "".join(_texts(kind)),
                inspect.cleandoc(cls.__doc__) + "\n",
            )
        return cls

    return complete


def _texts(kind: type) -> list[str]:
    """Returns the entries of `Args` in docstrings of a class and its bases."""
    found = []
    for each in reversed(kind.__mro__[:-1]):
        _, _, text = inspect.cleandoc(each.__doc__ or "").partition("Args:\n")
        text = text.partition("\n\n")[0]
        found += re.findall(r"(?m)^ {4}\w+: .*\n(?: {8}.*\n?)*", text)
    return [f"{each.rstrip()}\n" for each in found]


def is_zero(temperature: Any) -> bool:
    """Returns whether a temperature is that of the most likely token."""
    return is_number(temperature) and temperature == 0


def check_ids(name: str, value: Any) -> tuple[int, ...]:
    """Returns one id or several as a tuple; an empty one for None."""
    if value is None:
        return ()
    is_one = isinstance(value, str | bytes) or not hasattr(value, "__iter__")
    try:
        several = [value] if is_one else value
        return tuple(check_integer(name, each) for each in several)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must be an id or several. Received: {name}={value!r}"
        ) from None
