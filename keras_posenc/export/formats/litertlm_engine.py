"""Compares a package with its model inside LiteRT-LM's engine."""

import bisect
import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_run import (
    run_in_engine,
    score_case,
    tokenize_case,
)
from keras_posenc.export.probes.likelihoods import (
    TOKEN_SCORE,
    Likelihoods,
    of_targets,
    traced_once,
)
from keras_posenc.export.probes.many_texts import many_texts
from keras_posenc.export.report import CaseReport

# How special tokens begin that only the packed tokenizer spells.
_OWN = "<|keras_posenc:"
_LOST = "\ufffd"  # in place of bytes that are no character
_TOKENS = 48  # most tokens of a text that is scored after a prompt
_MESSAGES, _REPLY = ("Hello", "Why?"), 12  # a chat; tokens of a reply
_DRAWN = 4  # texts that the model samples after each prompt
_LONGEST = 700  # tokens of a prompt, or of a piece of a text
_ROUNDING = 2.0  # a log-probability is a difference of two logits
_TEXT = (
    "Once upon a time, in a village by the sea, there lived an old woman who "
    "knew the name of every ship. Each morning she walked to the harbour and "
    "counted the masts. One day a ship came whose name nobody had heard, and "
    "the captain asked her for the way to the island of glass. "
)


@dataclasses.dataclass(frozen=True)
class Prompt:
    """Texts that the engine reads one after another, the last of one token."""

    parts: Sequence[str]
    ids: Sequence[int]
    following: str
    signature: str  # which reads most of it


@dataclasses.dataclass(frozen=True)
class Target:
    """A text that the engine scores after a prompt, token by token."""

    prompt: Prompt
    text: str
    ids: list[int]
    wanted: np.ndarray  # the model's log-likelihoods
    size: float  # of its logits
    is_drawn: bool  # by the model


@dataclasses.dataclass
class EngineTest:
    """Runs a package in the engine, and compares or measures it."""

    parts: Any  # the `EngineParts` of the model
    names: Mapping[int, str]  # special tokens in the packed tokenizer, by ids
    stops: Sequence[str]  # how tokens that end a reply are spelled
    is_quantized: bool
    tolerance: float  # of logits, relative to the largest of them
    samples: Sequence[str] = ()  # further texts to score

    def run(
        self, path: Path, step: Callable[[str], object]
    ) -> tuple[str, list[CaseReport], list[dict[str, Any]]]:
        """Returns what it did, cases that are measured, and cases to keep."""
        texts = many_texts(
            [x for x in self.names.values() if not x.startswith(_OWN)]
        )
        step("Scoring texts with the model")
        prompts = self.prompts()
        targets = [each for each in self._targets(prompts) if each.ids]
        request = {
            "texts": texts,
            "targets": [
                {"parts": x.prompt.parts, "target": x.text} for x in targets
            ],
            "chats": [{"messages": _MESSAGES, "count": _REPLY}]
            * self._has_chat(),
        }
        tokens = sum(len(x.prompt.ids) + len(x.ids) for x in targets)
        step(
            f"LiteRT-LM's engine reads {len(texts)} texts and scores "
            f"{tokens:,} tokens"
        )
        found = run_in_engine(path, request, tokens)
        step("Comparing it with the model")
        ids = self.parts.tokenize(texts)
        for text, own, other in zip(texts, ids, found["texts"], strict=True):
            if own != _right("tokenize a text", other):
                raise ExportVerificationError(
                    f"LiteRT-LM makes the ids {other} of {text!r:.80}, and the "
                    f"model's tokenizer makes {own}",
                )
        tolerance = _ROUNDING * self.tolerance
        allowed = tolerance * max(each.size for each in targets)
        kept = [*map(tokenize_case, texts, ids)]
        largest = 0.0
        likelihoods = collections.defaultdict[Prompt, Likelihoods](Likelihoods)
        for target, scores in zip(targets, found["targets"], strict=True):
            got = np.array(_right("score a text", scores), "float64")
            if got.shape != target.wanted.shape:
                raise ExportVerificationError(
                    f"LiteRT-LM scores {len(got)} tokens of {target.text!r}, "
                    f"and the model {len(target.ids)}"
                )
            apart = np.abs(got - target.wanted)
            largest = float(np.maximum(largest, np.max(apart)))  # or NaN
            likelihoods[target.prompt] += of_targets(
                {TOKEN_SCORE: target.wanted},
                {TOKEN_SCORE: got},
                target.is_drawn,
            )
            kept.append(
                score_case(
                    *(target.prompt.parts, target.text, target.wanted, got),
                    size=target.size,
                    tolerance=tolerance,
                )
            )
        if not self.is_quantized and not largest <= allowed:
            raise ExportVerificationError(
                "In LiteRT-LM the log-probability of a token differs from the "
                f"model's by {largest:.2g} (allowed {allowed:.2g})",
            )
        turns = [_right("chat", each) for each in found["chats"]]
        for each in turns:
            self._check_chat(each)
        scored = sum(len(each.ids) for each in targets)
        spoken = sum(map(len, turns))
        limit = "" if self.is_quantized else f" (allowed {allowed:.2g})"
        said = [
            f"{units.count(len(texts), 'text')} tokenized equally",
            f"{scored} log-probabilities within {largest:.2g}{limit}",
            f"{units.count(spoken, 'turn')} of a chat" if spoken else "no chat",
        ]
        cases = [
            CaseReport(
                signature=prompt.signature,
                inputs=f"texts after a prompt of {len(prompt.ids)} tokens, in "
                "LiteRT-LM's engine",
                likelihoods=each,
            )
            for prompt, each in likelihoods.items()
        ]
        report = f"in LiteRT-LM's engine: {'; '.join(said)}"
        return report, cases if self.is_quantized else [], kept

    # ---- What the engine is run on

    def _has_chat(self) -> bool:
        """Returns whether there is a template, and room for two messages."""
        parts = self.parts
        if parts.template is None:
            return False
        turns = [{"role": "user", "content": each} for each in _MESSAGES]
        turns.insert(1, {"role": "assistant", "content": "x" * _REPLY})
        (ids,) = parts.tokenize([parts.render(turns)])
        room = parts.cache_length - parts.prefill_lengths[0] - 2 * _REPLY
        return len(ids) <= room

    @property
    def _count(self) -> int:
        return max(1, min(_TOKENS, int(self.parts.cache_length) // 4))

    def prompts(self) -> list[Prompt]:
        """Returns prompts of one chunk of each length, and of several."""
        lengths = self.parts.prefill_lengths
        smallest = lengths[0]
        # A padded chunk must fit into the cache.
        room = self.parts.cache_length - self._count - smallest
        most = max(1, min(room, _LONGEST))
        sizes = [4, smallest + smallest // 2 + 1, *lengths, lengths[-1] + 3]
        text = _TEXT * (2 + most * 8 // len(_TEXT))
        return [
            self._prompt(text, size)
            for size in sorted({min(size, most) for size in sizes})
        ]

    def _prompt(self, text: str, size: int) -> Prompt:
        start, last = self.parts.start_id, self._whole
        before = [self.names[start]] if start in self.names else []
        ids = [start] * len(before)
        (after,) = self.parts.tokenize([last])
        found = self.cut(text, size - len(ids) - len(after))
        own = self.parts.tokenize([found])[0] if found else []
        ids += [*own, *after]
        chunks = [x for x in self.parts.prefill_lengths if x >= len(ids)]
        chunk = (chunks or self.parts.prefill_lengths[-1:])[0]
        return Prompt(
            (*before, *([found] if own else []), last),
            (*ids,),
            text[len(found) :],
            f"prefill_{chunk}" if own else "decode",
        )

    @functools.cached_property
    def _whole(self) -> str:
        """A text of one token: the engine scores what follows such a one."""
        texts = [" and", "and", " the", "the", *"abcdefghijklmnopqrstuvwxyz"]
        found = zip(texts, self.parts.tokenize(texts), strict=True)
        return next((x for x, ids in found if len(ids) == 1), texts[0])

    def cut(self, text: str, size: int) -> str:
        """Returns the first words of a text, of at most `size` tokens."""

        def tokens(end: int) -> int:
            return len(self.parts.tokenize([text[:end]])[0])

        # A token is at most some letters: not all of a long text is tokenized.
        ends = range(1, min(len(text), 64 * max(size, 0)) + 1)
        end = bisect.bisect_right(ends, size, key=tokens)
        if end < len(text) and (space := text.rfind(" ", 1, end)) > 0:
            end = space
        return text[:end]

    def _target(
        self, prompt: Prompt, text: str, drawn: Sequence[int] = ()
    ) -> Target:
        (ids,) = self.parts.tokenize([text])
        logs, size = self.parts.logs(prompt.ids, ids)
        wanted = logs[range(len(ids)), ids]
        return Target(prompt, text, ids, wanted, size, ids == drawn)

    def _targets(self, prompts: Sequence[Prompt]) -> Iterator[Target]:
        """Yields what follows each prompt, and the pieces of `samples`."""
        sample = traced_once(self.parts.sampler(self._count))
        for prompt in prompts:
            yield self._target(prompt, self.cut(prompt.following, self._count))
            if self.is_quantized:
                yield from self._drawn(prompt, sample)
        before = self._prompt("", 0)
        room = self.parts.cache_length - self.parts.prefill_lengths[0]
        size = max(1, min(room - len(before.ids), _LONGEST))
        for text in self.samples:
            while text.strip():
                piece = self.cut(text, size) or text[:1]
                text = text[len(piece) :]
                yield self._target(before, piece)

    def _drawn(
        self, prompt: Prompt, sample: Callable[..., Any]
    ) -> Iterator[Target]:
        """Yields texts that the model samples, each up to an end."""
        given = np.array([prompt.ids] * _DRAWN, "int32")
        shape = _DRAWN, self._count
        noise = np.random.default_rng(0).random(shape, "float32")
        ends = {*self.parts.end_ids}
        for row in sample(given, noise).tolist():
            ids = [*itertools.takewhile(lambda x: x not in ends, row)]
            text = self.parts.text_of(ids)
            if text.strip() and _LOST not in text:
                yield self._target(prompt, text, ids)

    # ---- What is compared

    def _check_chat(self, turns: Sequence[Sequence[str]]) -> None:
        """Compares the texts that the engine made of a chat's messages."""
        chat: list[dict[str, str]] = []
        before: tuple[str, ...] = ()
        for message, (read, reply) in zip(_MESSAGES, turns, strict=True):
            chat.append({"role": "user", "content": message})
            wanted = self.parts.render(chat)
            # The engine has read a reply up to the token that ended it.
            known = wanted.removesuffix(read)
            ends = tuple(x + y for x in before for y in ("", *self.stops))
            is_right = known.endswith(ends) if ends else not known
            if known + read != wanted or not is_right:
                raise ExportVerificationError(
                    f"LiteRT-LM renders message {len(chat)} of a chat as "
                    f"{read!r}, and the model's template makes {wanted!r} of "
                    "the chat. The engine renders each message alone: between "
                    "a reply and the next message a template may put the token "
                    "that ends the reply, and the same after each reply",
                )
            chat.append({"role": "assistant", "content": reply})
            before = reply, reply.strip()  # a template may strip it


def _right(what: str, got: Any) -> Any:
    if isinstance(got, dict) and "error" in got:
        raise ExportVerificationError(
            f"LiteRT-LM's engine cannot {what}: {got['error']}"
        )
    return got
