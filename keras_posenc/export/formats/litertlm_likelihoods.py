"""Likelihoods of texts in LiteRT-LM's engine.

The engine reads a prompt in chunks, and then scores a text token by token, with
the caches that the package itself has written. This measures what a quantized
package loses: its caches may be far from the model's and lose nothing.
"""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.probes.likelihoods import (
    TOKEN_SCORE,
    Likelihoods,
    of_targets,
    traced_once,
)
from keras_posenc.export.report import CaseReport

# Texts that the model samples after each prompt, and their tokens.
_DRAWN = 4
_TOKENS = 48
_LONGEST = 700  # tokens of a prompt, or of a piece of a text
_FIRST = 8  # tokens of a text that are its prompt
_TEXT = (
    "Once upon a time, in a village by the sea, there lived an old woman who "
    "knew the name of every ship. Each morning she walked to the harbour and "
    "counted the masts. One day a ship came whose name nobody had heard, and "
    "the captain asked her for the way to the island of glass. "
)
_LOST = "\ufffd"  # in place of bytes that are no character


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prompt that ends with a whole token.

    Attributes:
        parts: Its texts, which the engine reads one after another.
        ids: Its ids.
        again: Its last token, as text.
        following: The text that follows it.
        signature: The signature that reads most of it.
    """

    parts: list[str]
    ids: list[int]
    again: str
    following: str
    signature: str


@dataclasses.dataclass(frozen=True)
class Target:
    """A text to score after a prompt.

    Attributes:
        prompt: The prompt.
        text: The text.
        ids: Its ids.
        is_drawn: Whether the model has sampled these ids.
    """

    prompt: Prompt
    text: str
    ids: list[int]
    is_drawn: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """The target as `keras_posenc_worker.run_litertlm` takes it."""
        # 0.18.1 takes the last token of a prompt for one slot earlier: with
        # that token twice, all is where it should be.
        parts = [*self.prompt.parts, self.prompt.again]
        return {"parts": parts, "target": self.text}


def prompts_of(
    parts: Any, names: Mapping[int, str], is_quantized: bool
) -> list[Prompt]:
    """Returns a short prompt, one of two chunks, and one of three or more.

    Of a quantized package, also one for each chunk's length.

    Args:
        parts: The `EngineParts`.
        names: How special tokens are spelled, by their ids.
        is_quantized: Whether weights are quantized.
    """
    smallest, *others = parts.prefill_lengths
    largest = parts.prefill_lengths[-1]
    # A padded chunk must fit into the cache.
    room = parts.cache_length - _count(parts) - smallest
    most = max(1, min(room, _LONGEST))
    sizes = [4, smallest + smallest // 2 + 1]
    if is_quantized:
        sizes += [smallest, *others]
    sizes.append(largest + 3)
    text = _TEXT * (2 + most * 8 // len(_TEXT))
    return [
        _prompt(parts, names, text, size)
        for size in dict.fromkeys(min(size, most) for size in sizes)
    ]


def targets_of(
    parts: Any, names: Mapping[int, str], prompts: Sequence[Prompt], texts: Any
) -> Iterator[Target]:
    """Yields what a quantized package is compared on.

    After each prompt these are the text that follows it, and texts that the
    model samples itself: see `probes.likelihoods`.

    Args:
        parts: The `EngineParts`.
        names: How special tokens are spelled, by their ids.
        prompts: The prompts.
        texts: Further texts, whole ones.
    """
    count = _count(parts)
    sample = traced_once(parts.sampler(count))
    noise = np.random.default_rng(0).random((_DRAWN, count), "float32")
    for prompt in prompts:
        following, ids = cut(parts, prompt.following, count)
        yield Target(prompt, following, ids)
        given = np.array([prompt.ids] * _DRAWN, "int32")
        for row in sample(given, noise):
            target = _drawn(parts, prompt, row.tolist())
            if target is not None:
                yield target
    yield from targets_of_texts(parts, names, texts)


def targets_of_texts(
    parts: Any, names: Mapping[int, str], texts: Sequence[str]
) -> Iterator[Target]:
    """Yields pieces of texts that fit into the cache, after their first words.

    Args:
        parts: The `EngineParts`.
        names: How special tokens are spelled, by their ids.
        texts: The texts.
    """
    room = parts.cache_length - _FIRST - parts.prefill_lengths[0]
    size = max(1, min(room, _LONGEST))
    for text in texts:
        prompt = _prompt(parts, names, text.strip(), _FIRST)
        prompt = dataclasses.replace(prompt, signature="decode")
        rest = prompt.following
        while rest.strip():
            piece, ids = cut(parts, rest, size)
            yield Target(prompt, piece, ids)
            rest = rest[len(piece) :]


def _count(parts: Any) -> int:
    """Returns how many tokens follow a prompt."""
    return max(1, min(_TOKENS, parts.cache_length // 4))


def _prompt(
    parts: Any, names: Mapping[int, str], text: str, size: int
) -> Prompt:
    """Returns the beginning of a text, of about `size` tokens.

    If none ends with a token that alone is the same, it is that of `_TEXT`.
    """
    words = cut(parts, text, size)[0].split(" ")
    for count in range(len(words), 0, -1):
        found = " ".join(words[:count])
        (ids,) = parts.tokenize([found])
        again = parts.text_of(ids[-1:])
        if parts.tokenize([again]) == [ids[-1:]]:  # a whole token
            break
    else:
        if text != _TEXT:
            first = _prompt(parts, names, _TEXT, size)
            return dataclasses.replace(first, following=text)
    before = names.get(parts.start_id) if parts.start_id is not None else None
    if before is not None:
        ids = [parts.start_id, *ids]
    return Prompt(
        [found] if before is None else [before, found],
        ids,
        again,
        text[len(found) :],
        f"prefill_{_chunk(parts, len(ids))}",
    )


def _chunk(parts: Any, size: int) -> int:
    """Returns the smallest chunk that holds so many tokens, or the largest."""
    sizes = [each for each in parts.prefill_lengths if each >= size]
    return int((sizes or parts.prefill_lengths[-1:])[0])


def cut(parts: Any, text: str, size: int) -> tuple[str, list[int]]:
    """Returns the beginning of a text, of at most `size` tokens, and ids.

    It ends after a word, or within the first word if that is longer, as texts
    without spaces are. It has at least one letter.
    """
    # A token is at most some letters: not all of a long text is tokenized.
    words = text[: 64 * size + 64].split(" ")
    least = 1 + (not words[0])  # a space before the first word
    found = _longest(parts, " ", words, least, size)
    (ids,) = parts.tokenize([found])
    if len(ids) > size:
        found = _longest(parts, "", found, least, size)
        (ids,) = parts.tokenize([found])
    return found, ids


def _longest(
    parts: Any, between: str, pieces: Sequence[str], least: int, size: int
) -> str:
    """Joins the most pieces of at most `size` tokens, at least `least`."""
    low, high = least, len(pieces)
    while low < high:
        middle = (low + high + 1) // 2
        (ids,) = parts.tokenize([between.join(pieces[:middle])])
        low, high = (middle, high) if len(ids) <= size else (low, middle - 1)
    return between.join(pieces[:low])


def _drawn(parts: Any, prompt: Prompt, row: Sequence[int]) -> Target | None:
    """Returns a target of sampled ids, up to an end; None if it has no text."""
    ends = {*parts.end_ids, parts.search.pad_id}
    drawn = [*itertools.takewhile(lambda each: each not in ends, row)]
    text = parts.text_of(drawn)
    if not text.strip() or _LOST in text:
        return None
    (ids,) = parts.tokenize([text])
    return Target(prompt, text, ids, is_drawn=ids == drawn)


def scored(target: Target, wanted: np.ndarray, got: np.ndarray) -> Likelihoods:
    """Returns the likelihoods of a target in the model and in the engine.

    Args:
        target: The target.
        wanted: The model's log-likelihoods of its tokens.
        got: The engine's.
    """
    return of_targets(
        {TOKEN_SCORE: wanted},
        {TOKEN_SCORE: got},
        target.is_drawn,
        np.ones(wanted.shape, bool),
    )


def cases_of(
    found: Sequence[tuple[Prompt, Likelihoods]],
) -> list[CaseReport]:
    """Returns a case for each prompt, with all that was measured after it."""
    by_prompt: dict[tuple[str, int], list[Likelihoods]] = {}
    for prompt, each in found:
        key = prompt.signature, len(prompt.ids)
        by_prompt.setdefault(key, []).append(each)
    return [
        CaseReport(
            signature=signature,
            inputs=f"texts after a prompt of {size} tokens, in LiteRT-LM's "
            "engine",
            likelihoods=functools.reduce(operator.add, each),
        )
        for (signature, size), each in by_prompt.items()
    ]
