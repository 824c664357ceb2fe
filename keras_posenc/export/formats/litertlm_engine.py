"""Compares a package with its model inside LiteRT-LM's engine.

A file that is right may still be packed wrongly: with another tokenizer,
template, start or end. The engine is run as an application runs it.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.formats.litertlm_likelihoods import (
    Prompt,
    Target,
    cases_of,
    chosen,
    prompts_of,
    scored,
    targets_of,
    targets_of_texts,
)
from keras_posenc.export.formats.litertlm_run import (
    continue_case,
    limits_of_engine,
    named_package,
    run_in_engine,
    score_case,
    threads,
    tokenize_case,
)
from keras_posenc.export.probes.likelihoods import Likelihoods
from keras_posenc.export.probes.many_texts import many_texts
from keras_posenc.export.report import CaseReport, EngineReport
from keras_posenc.export.worker_client import (
    Worker,
    WorkerError,
)
from keras_posenc.progress import counted
from keras_posenc_worker import run_litertlm

# How special tokens begin that only the packed tokenizer spells.
_OWN = "<|keras_posenc:"
# Tokens that are generated after each prompt, and after each message.
_TOKENS = 24
_REPLY = 12
# A log-probability is a difference of two logits.
_ROUNDING = 2.0
_MESSAGES = ("What is the capital of France?", "And of Italy?")


@dataclasses.dataclass(frozen=True)
class _Continued:
    """Ids, and what the model itself makes of them."""

    text: str
    ids: list[int]
    next_ids: list[int]
    leads: list[float]


def verify_in_engine(
    path: Path,
    parts: Any,
    names: Mapping[int, str],
    stops: Sequence[str],
    *,
    is_quantized: bool,
    tolerance: float,
    max_kl: float,
    samples: Sequence[str] = (),
    step: Callable[[str], object],
) -> tuple[EngineReport, list[CaseReport], list[dict[str, Any]]]:
    """Compares tokens, texts, likelihoods and a chat with the model's.

    Args:
        path: The package.
        parts: The `EngineParts` of its model.
        names: How the packed tokenizer spells its special tokens, by their ids.
        stops: How tokens that end a reply are spelled.
        is_quantized: Whether weights are quantized: then likelihoods are
            measured, instead of comparing single numbers and texts.
        tolerance: Largest difference of logits allowed, relative to the
            largest of them.
        max_kl: See `verify`.
        samples: Further texts to score.
        step: Shows the progress.

    Returns:
        What the engine did; of a quantized package a case for each prompt, with
        likelihoods to compare with the limits; and the cases that are kept.

    Raises:
        ExportVerificationError: The engine cannot run it, or makes something
            else of a text than the model.
    """
    texts = many_texts(
        [each for each in names.values() if not each.startswith(_OWN)]
    )
    step("Continuing prompts with the model")
    prompts = prompts_of(parts, names, is_quantized)
    own = [_continued(parts, each) for each in _ends(prompts)]
    if is_quantized:
        targets = [*targets_of(parts, names, prompts, samples)]
    else:
        targets = [
            *map(functools.partial(_target, parts), prompts[:2], own[:2]),
            *targets_of_texts(parts, names, samples),
        ]
    request: dict[str, Any] = {
        "texts": texts,
        "prompts": [
            {"parts": prompt.parts, "count": len(each.next_ids)}
            for prompt, each in zip(_ends(prompts), own, strict=True)
        ],
        "targets": [each.request for each in targets],
    }
    messages, longest = _messages(parts)
    if messages:
        request["chats"] = [{"messages": messages, "count": longest}]
    found = run_in_engine(
        path, request, sum(len(x.prompt.ids) for x in targets), step
    )
    ids = parts.tokenize(texts)
    _check_tokens(texts, ids, found["texts"])
    kept = [*map(tokenize_case, texts, ids)]
    near, largest, allowed, count = 0, 0.0, 0.0, 0
    measured: list[tuple[Prompt, Likelihoods]] = []
    step(comparing := "Comparing it with the model")
    show = counted(step, comparing, len(targets), "prompts")
    for done, (target, got) in enumerate(
        zip(targets, found["targets"], strict=True)
    ):
        show(done)
        wanted, _, size = parts.scores(target.prompt.ids, target.ids)
        scores = np.array(_right("score a text", got), "float64")
        if scores.shape != wanted.shape:
            raise ExportVerificationError(
                f"LiteRT-LM scores {len(scores)} tokens of {target.text!r}, "
                f"and the model {len(wanted)}"
            )
        allowed = max(allowed, _ROUNDING * tolerance * size)
        # NaN stays NaN, which the largest of Python's numbers would not.
        largest = float(np.max([largest, *np.abs(scores - wanted)]))
        measured.append((target.prompt, scored(target, wanted, scores)))
        kept.append(
            score_case(
                **target.request,
                wanted=wanted,
                got=scores,
                size=size,
                tolerance=_ROUNDING * tolerance,
            )
        )
        count += len(wanted)
    if not is_quantized and not largest <= allowed:
        raise ExportVerificationError(
            "In LiteRT-LM the log-probability of a token differs from the "
            f"model's by {largest:.2g} (allowed {allowed:.2g})",
            differs=True,
        )
    same = 0
    for prompt, each, got in zip(
        _ends(prompts), own, found["prompts"], strict=True
    ):
        text = _unspelled(parts, names, _right("continue a text", got))
        state = _compare(parts, each, text, allowed)
        if state == "equal":  # others may differ on another processor
            kept.append(continue_case(prompt.parts, len(each.next_ids), got))
        near += state == "near"
        same += state == "equal"
        if is_quantized:
            likely = chosen(parts, each.ids, each.next_ids, text, max_kl)
            measured.append((prompt, likely))
        elif state == "other":
            raise _differs(parts, each, text)
    turns = 0
    if messages:
        (chat,) = found["chats"]
        turns = _check_chat(
            parts,
            messages,
            [
                (read, _unspelled(parts, names, reply))
                for read, reply in _right("chat", chat)
            ],
            stops,
            longest,
            allowed,
            max_kl if is_quantized else None,
        )
    report = EngineReport(
        texts=len(texts),
        continuations=len(own),
        equal=same,
        near_ties=near,
        log_probabilities=count,
        largest_difference=largest,
        allowed_difference=None if is_quantized else allowed,
        turns=turns,
    )
    return report, cases_of(measured) if is_quantized else [], kept


def _right(what: str, got: Any) -> Any:
    """Returns what the engine made; raises if it was an error."""
    if isinstance(got, dict) and "error" in got:
        raise ExportVerificationError(
            f"LiteRT-LM's engine cannot {what}: {got['error']}"
        )
    return got


def _ends(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Returns the prompts that are continued: two short ones, and the last."""
    return [*prompts[:2], *prompts[2:][-1:]]


def _continued(parts: Any, prompt: Prompt) -> _Continued:
    """Returns a prompt with the model's own continuation."""
    count = max(1, min(_TOKENS, parts.cache_length // 4))
    following, leads = parts.continued(prompt.ids, count)
    return _Continued("".join(prompt.parts), prompt.ids, following, leads)


def _target(parts: Any, prompt: Prompt, own: _Continued) -> Target:
    """Returns a text to score: what the model itself makes of a prompt."""
    text = parts.text_of(own.next_ids)
    # An end is not spelled; and a text cut within a character is another.
    if "\ufffd" in text or not text.strip():
        text = " and the ship"
    return Target(prompt, text, parts.tokenize([text])[0])


def _messages(parts: Any) -> tuple[Sequence[str], int]:
    """Returns messages of a user, and how many tokens each reply may have.

    Raises:
        ExportVerificationError: The cache has no room for two messages.
    """
    if parts.template is None:
        return [], 0
    room = parts.cache_length - parts.prefill_lengths[0]
    for messages, count in ((_MESSAGES, _REPLY), (("a", "b"), 2)):
        turns: list[dict[str, str]] = []
        for each in messages:
            turns += [
                {"role": "user", "content": each},
                {"role": "assistant", "content": "x" * count},
            ]
        (ids,) = parts.tokenize([parts.render(turns[:-1])])
        if len(ids) + 2 * count <= room:
            return messages, count
    raise ExportVerificationError(
        "A chat of two short messages does not fit into "
        f"cache_length={parts.cache_length}, so the template of chats cannot "
        "be verified. Give a larger `cache_length` (--cache-length), or a "
        "generator without a template"
    )


def _check_tokens(
    texts: Sequence[str],
    wanted: Sequence[Sequence[int]],
    found: Sequence[Any],
) -> None:
    for text, ids, got in zip(texts, wanted, found, strict=True):
        if [*ids] != _right("tokenize a text", got):
            raise ExportVerificationError(
                f"LiteRT-LM makes the ids {got} of the text {text!r:.80}, and "
                f"the model's tokenizer makes {[*ids]}: the packed tokenizer "
                "is another. Give the checkpoint's own: `tokenizer=FOLDER` "
                "(--tokenizer FOLDER)",
                differs=True,
            )


def _unspelled(parts: Any, names: Mapping[int, str], text: str) -> str:
    """Returns a text without special tokens that the model leaves out."""
    for number, name in names.items():
        if name in text and not parts.text_of([number]):
            text = text.replace(name, "")
    return text


def _compare(parts: Any, prompt: _Continued, text: str, allowed: float) -> str:
    """Returns "equal", "near" or "other"."""
    # The engine may hold back bytes that are no whole character.
    if text.rstrip("\ufffd") == parts.text_of(prompt.next_ids).rstrip("\ufffd"):
        return "equal"
    for index, lead in enumerate(prompt.leads):
        if lead <= allowed:
            decided = parts.text_of(prompt.next_ids[:index]).rstrip("\ufffd")
            return "near" if text.startswith(decided) else "other"
    return "other"


def _differs(
    parts: Any, prompt: _Continued, text: str
) -> ExportVerificationError:
    wanted = parts.text_of(prompt.next_ids)
    return ExportVerificationError(
        f"LiteRT-LM continues {prompt.text!r:.60} with "
        f"{text!r:.80}, and the model with {wanted!r:.80}",
        differs=True,
    )


def _check_chat(
    parts: Any,
    messages: Sequence[str],
    turns: Sequence[Sequence[str]],
    stops: Sequence[str],
    longest: int,
    allowed: float,
    max_kl: float | None,
) -> int:
    """Compares what the engine read and wrote in a chat; returns its turns.

    With `max_kl`, replies may be others that the model finds likely.
    """
    chat: list[dict[str, str]] = []
    ids: list[int] = []
    before = ""
    for message, (read, reply) in zip(messages, turns, strict=True):
        chat.append({"role": "user", "content": message})
        wanted = parts.render(chat)
        # A template may strip the reply.
        if wanted not in (before + read, _stripped(before, chat) + read):
            raise ExportVerificationError(
                f"LiteRT-LM renders message {len(chat)} of a chat as "
                f"{read!r}, and the text before it is {before!r}; the model's "
                f"template makes {wanted!r} of the chat. The engine renders "
                "each message alone: between a reply and the next message, a "
                "template may put the token that ends the reply, and then what "
                "is the same after each reply, and nothing else",
                differs=True,
            )
        ids += parts.tokenize([read])[0]
        next_ids, leads = parts.continued(ids, longest)
        prompt = _Continued(wanted, ids, next_ids, leads)
        state = _compare(parts, prompt, reply, allowed)
        if state == "other":
            if max_kl is None:
                raise _differs(parts, prompt, reply)
            chosen(parts, ids, next_ids, reply, max_kl)
        if state != "equal":  # the model's own chat goes another way
            return len(chat) // 2 + 1
        chat.append({"role": "assistant", "content": reply})
        after = parts.render([*chat, {"role": "user", "content": messages[-1]}])
        end = next(
            (
                each
                for each in stops
                if after.startswith(f"{wanted}{reply}{each}")
            ),
            "",
        )
        before = f"{wanted}{reply}{end}"
        ids = [*ids, *next_ids]
    return len(turns)


def _stripped(before: str, chat: Sequence[Mapping[str, str]]) -> str:
    """Returns the text so far, with the last reply stripped."""
    if len(chat) < 3:
        return before
    reply = chat[-2]["content"]
    head, found, tail = before.rpartition(reply)
    return f"{head}{found.strip()}{tail}" if reply.strip() else before


class PackageChat:
    """Replies to chats by a package, in one process with limits of memory.

    Args:
        path: The package.
        count: The most tokens of a reply; None for as many as there is room.
        sampler: Arguments of the engine's `SamplerConfig`; None for the
            package's own.
    """

    def __init__(
        self,
        path: Path,
        *,
        count: int | None = None,
        sampler: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = path
        self._options = {
            "threads": threads(),
            "count": count,
            "sampler": sampler,
        }

    def reply(self, chat: Sequence[Mapping[str, str]]) -> "PackageReply":
        """Returns the pieces of the next message.

        Args:
            chat: The chat, which ends with a user's message.
        """
        return PackageReply(self._path, chat, self._options)


class PackageReply(Iterator[str]):
    """Pieces of a reply; its process ends with it.

    Attributes:
        ended: None; whether a reply was cut off is not known of the engine.
    """

    ended: bool | None = None

    def __init__(
        self,
        path: Path,
        chat: Sequence[Mapping[str, str]],
        options: Mapping[str, Any],
    ) -> None:
        self._path = path
        self._within = contextlib.ExitStack()
        package = self._within.enter_context(named_package(path))
        self._worker = self._within.enter_context(Worker(run_litertlm.__name__))
        limits = dataclasses.replace(limits_of_engine(path, 0), seconds=None)
        self._worker.call(
            "reply", str(package), [*chat], options, limits=limits
        )

    def __del__(self) -> None:  # it was stopped
        self._within.close()

    def __next__(self) -> str:
        try:
            found = self._worker.response()
        except WorkerError as error:
            self._within.close()
            raise ValueError(
                f"LiteRT-LM's engine {error} while it ran '{self._path}'"
            ) from error
        if "piece" in found:
            return str(found["piece"])
        self._within.close()
        if "error" in found:
            raise ValueError(
                f"LiteRT-LM's engine does not reply: {found['error']}"
            )
        raise StopIteration
