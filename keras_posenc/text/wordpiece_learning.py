"""Learning WordPiece vocabularies from texts."""

import collections
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_posenc.text.corpus import texts_of
from keras_posenc.text.wordpiece_vocabulary import SPECIAL_TOKENS, SUFFIX

# Texts in one step of counting: large enough to hide a step's overhead.
_BATCH = 1024
# Longest word to learn from, in characters.
_LONGEST = 50


def learn_vocabulary(
    corpus: Any, vocabulary_size: int, words_of: Callable[[Any], Any]
) -> list[str]:
    """Learns a vocabulary by merging the most frequent neighbours.

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
    """Yields the tokens that merging neighbours makes, most frequent first.

    Only the counts that a merge changes are computed again. Equal counts are
    in the order of the tokens.
    """
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
    """Replaces a pair by a token, from the left."""
    at = 0
    while at < len(parts) - 1:
        if (parts[at], parts[at + 1]) == pair:
            parts[at : at + 2] = [token]
        at += 1
