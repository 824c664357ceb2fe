"""Compares a package with its model inside LiteRT-LM's engine.

A file that is right may still be packed wrongly: with another tokenizer,
template, start or end. The engine is run as an application runs it: it reads
prompts in chunks, and continues them or scores texts, with the caches that the
package itself has written.
"""

import bisect
import dataclasses
import functools
import itertools
import re
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
_UNREADABLE = f"{re.escape(_OWN)}|{_LOST}"
_TOKENS = 48  # most tokens of a text that is scored after a prompt
_CONTINUED = 24  # most tokens that are generated after a prompt
_REPLY = 12  # and of a reply in a chat
_DRAWN = 4  # texts that the model samples after each prompt
_LONGEST = 700  # tokens of a prompt, or of a piece of a text
# A log-probability is a difference of two logits.
_ROUNDING = 2.0
_MESSAGES = ("Hello", "Why?")
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
    by_model: bool = False  # which has sampled the ids
    by_engine: bool = False  # which has generated the text

    @property
    def request(self) -> dict[str, Any]:
        """The target as `keras_posenc_worker.run_litertlm` takes it."""
        return {"parts": self.prompt.parts, "target": self.text}

    def likelihoods(self, got: np.ndarray) -> Likelihoods:
        """Returns how far the engine's log-likelihoods are from the model's."""
        own, other = {TOKEN_SCORE: self.wanted}, {TOKEN_SCORE: got}
        all_tokens = np.ones(got.shape, bool)
        if not self.by_engine:
            return of_targets(own, other, self.by_model, all_tokens)
        # Perplexity would not show a text that only the engine finds likely.
        found = of_targets(other, own, True, all_tokens)
        return Likelihoods(drawn=found.drawn, divergence=found.divergence)


@dataclasses.dataclass
class EngineTest:
    """Runs a package in the engine, and compares it with its model.

    Attributes:
        parts: The `EngineParts` of the model.
        names: How the packed tokenizer spells its special tokens, by their ids.
        stops: How tokens that end a reply are spelled.
        is_quantized: Whether weights are quantized: then likelihoods are
            measured, instead of comparing single numbers and texts.
        tolerance: Largest difference of logits allowed, relative to the
            largest of them.
        samples: Further texts to score.
    """

    parts: Any
    names: Mapping[int, str]
    stops: Sequence[str]
    is_quantized: bool
    tolerance: float
    samples: Sequence[str] = ()

    def run(
        self, path: Path, step: Callable[[str], object]
    ) -> tuple[str, list[CaseReport], list[dict[str, Any]]]:
        """Compares tokens, texts, likelihoods and a chat with the model's.

        Returns what the engine did; of a quantized package a case for each
        prompt, with likelihoods to compare with the limits; and the cases that
        are kept.
        """
        parts, count = self.parts, min(self._count, _CONTINUED)
        texts = many_texts(
            [x for x in self.names.values() if not x.startswith(_OWN)]
        )
        step("Scoring texts with the model")
        prompts = self.prompts()
        targets = [each for each in self._targets(prompts) if each.ids]
        request = {
            "texts": texts,
            "prompts": [{"parts": x.parts, "count": count} for x in prompts],
            "targets": [each.request for each in targets],
            "chats": [self._chat] if self._chat else [],
        }
        tokens = sum(len(x.prompt.ids) + len(x.ids) for x in targets)
        step(
            f"LiteRT-LM's engine reads {len(texts)} texts, continues "
            f"{len(prompts)} prompts and scores {tokens:,} tokens"
        )
        found = run_in_engine(path, request, tokens)
        step("Comparing it with the model")
        ids = parts.tokenize(texts)
        self._check_tokens(texts, ids, found["texts"])
        generated = []
        for prompt, each in zip(prompts, found["prompts"], strict=True):
            text = _right("continue a text", each)["text"]
            generated.append((prompt.ids, text, count))
            if text and not re.search(_UNREADABLE, text):
                targets.append(self._target(prompt, text, by_engine=True))
                found["targets"].append(each["scores"])
        kept = [*map(tokenize_case, texts, ids)]
        tolerance, largest = _ROUNDING * self.tolerance, 0.0
        likelihoods: dict[Prompt, Likelihoods] = {}
        for target, scores in zip(targets, found["targets"], strict=True):
            got = np.array(_right("score a text", scores), "float64")
            if got.shape != target.wanted.shape:
                raise ExportVerificationError(
                    f"LiteRT-LM scores {len(got)} tokens of {target.text!r}, "
                    f"and the model {len(target.ids)}"
                )
            apart = np.abs(got - target.wanted)
            largest = float(np.maximum(largest, np.max(apart)))  # or NaN
            known = likelihoods.get(target.prompt, Likelihoods())
            likelihoods[target.prompt] = known + target.likelihoods(got)
            kept.append(
                score_case(
                    *target.request.values(),
                    *(target.wanted, got),
                    size=target.size,
                    tolerance=tolerance,
                )
            )
        allowed = tolerance * max(each.size for each in targets)
        if not self.is_quantized and not largest <= allowed:
            raise ExportVerificationError(
                "In LiteRT-LM the log-probability of a token differs from the "
                f"model's by {largest:.2g} (allowed {allowed:.2g})",
            )
        states = [self._compare(*each, allowed)[0] for each in generated]
        turns = [_right("chat", each) for each in found["chats"]]
        for each in turns:
            self._check_chat(each, allowed)
        scored = sum(len(each.ids) for each in targets)
        near, spoken = states.count("near"), sum(map(len, turns))
        limit = "" if self.is_quantized else f" (allowed {allowed:.2g})"
        parts = [
            f"{units.count(len(texts), 'text')} tokenized equally",
            f"{states.count('equal')} of {len(states)} continuations equal"
            + f", {near} up to a near-tie" * bool(near),
            f"{scored} log-probabilities within {largest:.2g}{limit}",
            f"{units.count(spoken, 'turn')} of a chat" if spoken else "no chat",
        ]
        report = f"in LiteRT-LM's engine: {'; '.join(parts)}"
        cases = [
            CaseReport(
                signature=prompt.signature,
                inputs=f"texts after a prompt of {len(prompt.ids)} tokens, in "
                "LiteRT-LM's engine",
                likelihoods=each,
            )
            for prompt, each in likelihoods.items()
        ]
        return report, cases if self.is_quantized else [], kept

    # ---- What the engine is run on

    @functools.cached_property
    def _chat(self) -> dict[str, Any] | None:
        """Messages of a user, and how many tokens each reply has.

        None without a template, or if the cache has no room for two messages.
        """
        parts = self.parts
        if parts.template is None:
            return None
        room = parts.cache_length - parts.prefill_lengths[0]
        for messages, count in ((_MESSAGES, _REPLY), (("a", "b"), 2)):
            turns = [{"role": "user", "content": each} for each in messages]
            turns.insert(1, {"role": "assistant", "content": "x" * count})
            (ids,) = parts.tokenize([parts.render(turns)])
            if len(ids) + 2 * count <= room:
                return {"messages": messages, "count": count}
        return None

    @property
    def _count(self) -> int:
        """How many tokens follow a prompt."""
        return max(1, min(_TOKENS, int(self.parts.cache_length) // 4))

    def prompts(self) -> list[Prompt]:
        """Returns a short prompt, one of two chunks, and one of three or more.

        Of a quantized package, also one for each chunk's length.
        """
        lengths = self.parts.prefill_lengths
        smallest = lengths[0]
        # A padded chunk must fit into the cache.
        room = self.parts.cache_length - self._count - smallest
        most = max(1, min(room, _LONGEST))
        sizes = [4, smallest + smallest // 2 + 1, lengths[-1] + 3]
        if self.is_quantized:
            sizes += lengths
        text = _TEXT * (2 + most * 8 // len(_TEXT))
        return [
            self._prompt(text, size)
            for size in sorted({min(size, most) for size in sizes})
        ]

    def _prompt(self, text: str, size: int) -> Prompt:
        """Returns the beginning of a text, of at most `size` tokens."""
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
        """Returns the beginning of a text, of at most `size` tokens.

        It ends after a word, if it has several. It is empty if no letter fits.
        """

        def tokens(end: int) -> int:
            return len(self.parts.tokenize([text[:end]])[0])

        # A token is at most some letters: not all of a long text is tokenized.
        ends = range(1, min(len(text), 64 * max(size, 0)) + 1)
        end = bisect.bisect_right(ends, size, key=tokens)
        if end < len(text) and (space := text.rfind(" ", 1, end)) > 0:
            end = space
        return text[:end]

    def _target(self, prompt: Prompt, text: str, **by: bool) -> Target:
        (ids,) = self.parts.tokenize([text])
        logs, size = self.parts.logs(prompt.ids, ids)
        return Target(prompt, text, ids, logs[range(len(ids)), ids], size, **by)

    def _targets(self, prompts: Sequence[Prompt]) -> Iterator[Target]:
        """Yields texts to score.

        After each prompt the text that follows it and, for a quantized package,
        texts that the model samples. Then the pieces of `samples` that fit into
        the cache.
        """
        for prompt in prompts:
            yield self._target(prompt, self.cut(prompt.following, self._count))
            if self.is_quantized:
                yield from self._drawn(prompt)
        before = self._prompt("", 0)
        room = self.parts.cache_length - self.parts.prefill_lengths[0]
        size = max(1, min(room - len(before.ids), _LONGEST))
        for text in self.samples:
            while text.strip():
                piece = self.cut(text, size) or text[:1]
                text = text[len(piece) :]
                yield self._target(before, piece)

    def _drawn(self, prompt: Prompt) -> Iterator[Target]:
        """Yields texts that the model samples, each up to an end."""
        given = np.array([prompt.ids] * _DRAWN, "int32")
        shape = _DRAWN, self._count
        noise = np.random.default_rng(0).random(shape, "float32")
        ends = {*self.parts.end_ids}
        for row in self._sample(given, noise).tolist():
            ids = [*itertools.takewhile(lambda x: x not in ends, row)]
            text = self.parts.text_of(ids)
            if text.strip() and _LOST not in text:
                found = self._target(prompt, text)
                yield dataclasses.replace(found, by_model=found.ids == ids)

    @functools.cached_property
    def _sample(self) -> Callable[..., Any]:
        return traced_once(self.parts.sampler(self._count))

    # ---- What is compared

    def _check_tokens(
        self,
        texts: Sequence[str],
        wanted: Sequence[Sequence[int]],
        found: Sequence[Any],
    ) -> None:
        for text, ids, got in zip(texts, wanted, found, strict=True):
            if [*ids] != _right("tokenize a text", got):
                raise ExportVerificationError(
                    f"LiteRT-LM makes the ids {got} of the text {text!r:.80}, "
                    f"and the model's tokenizer makes {[*ids]}: the packed "
                    "tokenizer is another. Give the checkpoint's own: "
                    "`tokenizer=FOLDER` (--tokenizer FOLDER)",
                )

    def _compare(
        self, ids: Sequence[int], text: str, count: int, allowed: float
    ) -> tuple[str, list[int]]:
        """Returns whether a text after a prompt is the model's, and its ids.

        "equal", "near", if two tokens were equally likely, to `allowed` nats,
        where it becomes another, or "other".
        """
        parts = self.parts
        text = self._shown(text)
        own = parts.continued(ids, count)
        wanted = parts.text_of(own)
        # The engine may hold back bytes that are no whole character.
        if text.rstrip(_LOST) == wanted.rstrip(_LOST):
            return "equal", own
        logs, _ = parts.logs(ids, own)
        *_, second, first = np.partition(logs, (-2, -1)).T
        (ties,) = np.nonzero(first - second <= allowed)
        if ties.size:
            decided = parts.text_of(own[: ties[0]]).rstrip(_LOST)
            if text.startswith(decided):
                return "near", own
        if not self.is_quantized:
            raise ExportVerificationError(
                f"LiteRT-LM continues {parts.text_of(ids)!r:.60} with "
                f"{text!r:.80}, and the model with {wanted!r:.80}",
            )
        return "other", own

    def _check_chat(
        self, turns: Sequence[Sequence[str]], allowed: float
    ) -> None:
        """Compares what the engine read and wrote in a chat."""
        parts, chat = self.parts, list[dict[str, str]]()
        ids: list[int] | None = []
        before: Sequence[str] = ()
        assert self._chat is not None
        messages, count = self._chat["messages"], self._chat["count"]
        for message, (read, reply) in zip(messages, turns, strict=True):
            chat.append({"role": "user", "content": message})
            wanted = parts.render(chat)
            ends = [self._with_stop(each, wanted) for each in before] or [""]
            if wanted not in [each + read for each in ends]:
                raise ExportVerificationError(
                    f"LiteRT-LM renders message {len(chat)} of a chat as "
                    f"{read!r}; the model's template makes {wanted!r} of the "
                    "chat. The engine renders each message alone: between a "
                    "reply and the next message, a template may put the token "
                    "that ends the reply, and then what is the same after each "
                    "reply, and nothing else",
                )
            if ids is not None:  # until the model's own chat is another
                ids += parts.tokenize([read])[0]
                state, own = self._compare(ids, reply, count, allowed)
                ids = [*ids, *own] if state == "equal" else None
            reply = self._shown(reply)
            chat.append({"role": "assistant", "content": reply})
            # A template may strip the reply.
            before = wanted + reply, wanted + reply.strip()

    def _with_stop(self, text: str, chat: str) -> str:
        """Returns the beginning of a chat with the token that ends it."""
        stops = (x for x in self.stops if chat.startswith(text + x))
        return text + next(stops, "")

    def _shown(self, text: str) -> str:
        """Returns a text without special tokens that the model leaves out."""
        for number, name in self.names.items():
            if name in text and not self.parts.text_of([number]):
                text = text.replace(name, "")
        return text


def _right(what: str, got: Any) -> Any:
    """Returns what the engine made; raises if it was an error."""
    if isinstance(got, dict) and "error" in got:
        raise ExportVerificationError(
            f"LiteRT-LM's engine cannot {what}: {got['error']}"
        )
    return got
