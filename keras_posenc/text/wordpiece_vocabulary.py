"""WordPiece vocabularies: reading, checking, and learning from texts."""

import collections
import heapq
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.text.files import check_tokens, lines_of, read_text, shown


def texts_of(corpus: Any) -> Iterator[str]:
    """Yields the texts of a corpus, with U+FFFD for invalid UTF-8."""
    if isinstance(corpus, str | bytes):
        raise TypeError(
            "`corpus` must be an iterable of strings or a `tf.data.Dataset` "
            f"of strings. Received one string: {corpus!r:.40}."
        )
    if hasattr(corpus, "as_numpy_iterator"):  # of texts, or of batches
        corpus = (
            text
            for each in corpus.as_numpy_iterator()
            for text in ([each] if isinstance(each, bytes) else np.ravel(each))
        )
    for text in corpus:
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        if not isinstance(text, str):
            raise TypeError(
                "`corpus` must hold strings. "
                f"Received an element of type {type(text).__name__}."
            )
        yield text


PAD, UNK, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP)
SUFFIX = "##"
_HALF = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, in Python


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Reads a vocabulary file: UTF-8, one token a line."""
    file = pathlib.Path(os.path.expanduser(path))
    if not file.is_file():
        raise FileNotFoundError(
            "`vocabulary` must be a list of tokens or the path of a file "
            f"with one token a line. Received: vocabulary={str(path)!r}, "
            "which is not a file."
        )
    # Not "utf-8": some editors write a byte order mark.
    return lines_of(read_text(file, "utf-8-sig"))


def check_vocabulary(
    vocabulary: Sequence[str], special_tokens: Sequence[str]
) -> None:
    """Raises `ValueError` unless a vocabulary has each token once."""
    if not vocabulary:
        raise ValueError(
            "`vocabulary` must hold at least the special tokens "
            f"{', '.join(special_tokens)}. Received an empty vocabulary."
        )
    for index, token in enumerate(vocabulary):
        if not isinstance(token, str) or not token:
            raise ValueError(
                "`vocabulary` must hold non-empty strings. "
                f"Received at index {index}: {shown(token)}."
            )
        if not token.isascii() and _HALF.search(token):
            raise ValueError(
                "`vocabulary` must hold text, and half of a character, a lone "
                f"surrogate, is not. Received at index {index}: {token!r}."
            )
    check_tokens("vocabulary", vocabulary)
    counts = collections.Counter(vocabulary)
    if repeated := [token for token, count in counts.items() if count > 1]:
        raise ValueError(
            "`vocabulary` must hold every token once. "
            f"Received more than once: {_names(map(repr, repeated))}."
        )
    if missing := [token for token in special_tokens if token not in counts]:
        raise ValueError(
            "`vocabulary` must hold the special tokens "
            f"{_names(special_tokens)}. Missing: {_names(missing)}."
        )


def _names(tokens: Iterable[str]) -> str:
    """Returns the first few tokens, for an error message."""
    names = [token[:40] for token in tokens]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


# Texts in one step of counting: large enough to hide a step's overhead.
_BATCH = 1024
# Longest word to learn from, in characters.
_LONGEST = 50


def learn_vocabulary(
    corpus: Any, vocabulary_size: int, words_of: Callable[[Any], Any]
) -> list[str]:
    """Learns a vocabulary by merging the most frequent neighbors.

    The same as byte pair encoding, on characters. The result depends only on
    how often each word occurs, never on the order of the texts. Every character
    that fits is kept, alone and as a suffix, so words without a token still
    split into known pieces. First are the special tokens, then characters in
    alphabetical order, then the other tokens, the most frequent first.
    """
    smallest = len(SPECIAL_TOKENS) + 2
    if vocabulary_size < smallest:
        raise ValueError(
            f"`vocabulary_size` must be at least {smallest}, for the special "
            "tokens and one character, alone and as a suffix. "
            f"Received: vocabulary_size={vocabulary_size}."
        )
    words = _count_words(corpus, words_of)
    if not words:
        raise ValueError("`corpus` must hold at least one word. Received none.")
    characters: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    room = (vocabulary_size - len(SPECIAL_TOKENS)) // 2
    # Ties by code point, so that the order of texts does not matter.
    by_count = sorted(characters, key=lambda c: (-characters[c], c))
    kept = sorted(by_count[:room])
    spelled = {
        word: count
        for word, count in words.items()
        if len(word) <= _LONGEST and set(word) <= set(kept)
    }
    if not spelled:
        raise ValueError(
            f"`corpus` must hold a word of at most {_LONGEST} characters that "
            "`vocabulary_size` leaves room to spell. Received none for "
            f"vocabulary_size={vocabulary_size}."
        )
    vocabulary = [*SPECIAL_TOKENS, *kept, *(SUFFIX + c for c in kept)]
    merged = _merges(spelled)
    return vocabulary + list(
        itertools.islice(merged, vocabulary_size - len(vocabulary))
    )


def _count_words(corpus: Any, words_of: Callable[[Any], Any]) -> dict[str, int]:
    import tensorflow as tf

    counts: collections.Counter[bytes] = collections.Counter()
    texts = texts_of(corpus)
    while batch := list(itertools.islice(texts, _BATCH)):
        words = words_of(tf.constant(batch)).flat_values
        counts.update(words.numpy().tolist())
    return {word.decode(): count for word, count in counts.items()}


def _merges(words: Mapping[str, int]) -> Iterator[str]:
    """Yields the tokens that merging neighbors makes, most frequent first."""
    pieces = [[word[0], *(SUFFIX + c for c in word[1:])] for word in words]
    counts = list(words.values())
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    places = collections.defaultdict(set)
    for index, parts in enumerate(pieces):
        for pair in itertools.pairwise(parts):
            pairs[pair] += counts[index]
            places[pair].add(index)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    seen = set()
    while heap:
        count, pair = heapq.heappop(heap)
        if pairs[pair] != -count:
            continue  # counted again since then
        token = pair[0] + pair[1].removeprefix(SUFFIX)
        if token not in seen:  # other parts may have made it before
            seen.add(token)
            yield token
        changed: set[tuple[str, str]] = set()
        for index in places.pop(pair):
            parts = pieces[index]
            before = list(itertools.pairwise(parts))
            _merge(parts, pair, token)
            after = list(itertools.pairwise(parts))
            for each in before:
                pairs[each] -= counts[index]
            for each in after:
                pairs[each] += counts[index]
                places[each].add(index)
            changed.update(before, after)
        for each in changed:
            if pairs[each] > 0:
                heapq.heappush(heap, (-pairs[each], each))


def _merge(parts: list[str], pair: tuple[str, str], token: str) -> None:
    at = 0
    while at < len(parts) - 1:
        if (parts[at], parts[at + 1]) == pair:
            parts[at : at + 2] = [token]
        at += 1
