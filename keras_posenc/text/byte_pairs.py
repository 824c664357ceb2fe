"""Byte pair encoding of words, in TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.text.lookup import Lookup

# Longest token that is looked up, in bytes; longer ones (few) are merged.
_LONGEST = 128
_LARGEST = np.iinfo(np.int64).max


def _byte_characters() -> dict[str, int]:
    """Returns the bytes by their characters in vocabularies, as in GPT-2."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in sorted(plain)} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }


BYTES = _byte_characters()
# Those that every vocabulary has: of ASCII, and the space. Some lack bytes of
# control characters and of planes that are hardly used.
_PRINTED = {*map(chr, range(33, 127)), "Ġ"}


def spelled_bytes(token: str) -> bytes:
    """Returns the bytes of a token; UTF-8 for one not spelled that way."""
    try:
        return bytes(BYTES[character] for character in token)
    except KeyError:
        return token.encode()


class BytePairs:
    """Splits words into tokens.

    A word starts as its bytes. Of all neighbouring pairs the one whose merge
    is the first in the list becomes one token (the leftmost, if several are
    equal), until no pair has a merge. All words are processed at once: each
    step merges one pair of each.

    Args:
        ids: the tokens with their ids, bytes among them. A byte without a
            token is left out of the words, as in the library "tokenizers".
        merges: pairs of tokens, with a space in between, in order of priority.
        ignore_merges: whether a word that is a token stays one, whatever the
            merges make of it.

    Raises:
        ValueError: if a token is missing.
    """

    def __init__(
        self, ids: Mapping[str, int], merges: Sequence[str], ignore_merges: bool
    ) -> None:
        import tensorflow as tf

        missing = [c for c in BYTES if c in _PRINTED and c not in ids]
        if missing:
            raise ValueError(
                "`vocabulary` must hold the bytes of letters, digits and "
                f"signs. Missing: {''.join(missing):.20}."
            )
        self._size = 1 + max(ids.values())
        # A key that no pair has, so that the search is never empty.
        known = {-1: (0, 0), **self._numbered(ids, merges)}
        keys = sorted(known)
        ranks, merged = np.array([known[key] for key in keys], np.int64).T
        of_bytes = [
            ids.get(c, -1) for c in sorted(BYTES, key=BYTES.__getitem__)
        ]
        self._lacks_bytes = -1 in of_bytes
        # Constants, made here once and on the CPU, where strings are. Sorted
        # arrays, not tables: a graph would have to be given those resources.
        with tf.init_scope(), tf.device("CPU:0"):
            self._keys = tf.constant(keys, "int64")
            self._ranks, self._merged = tf.constant(ranks), tf.constant(merged)
            self._of_bytes = tf.constant(of_bytes, "int64")
            # As a graph: in Python, a step takes a hundred times as long.
            self._merge_eagerly = tf.function(
                self._merge, input_signature=[tf.TensorSpec([None], tf.string)]
            )
            # Tokens that are not spelled as bytes match none.
            known_words = {
                spelled_bytes(token): number
                for token, number in ids.items()
                if BYTES.keys() >= {*token}
                and (ignore_merges or len(token) <= _LONGEST)
            }
            words = tf.constant([*known_words])
            numbers = tf.constant([*known_words.values()], "int32")
            if not ignore_merges:
                # Most words of a text are one token and need no loop.
                is_whole = self._merge_eagerly(words).row_lengths() == 1
                words = tf.boolean_mask(words, is_whole)
                numbers = tf.boolean_mask(numbers, is_whole)
        self._whole = Lookup(
            dict(zip(words.numpy(), numbers.numpy().tolist(), strict=True)), -1
        )

    def _numbered(
        self, ids: Mapping[str, int], merges: Sequence[str]
    ) -> dict[int, tuple[int, int]]:
        """Returns rank and token of each pair, by its key."""
        found = {}
        for rank, merge in enumerate(merges):
            left, _, right = merge.partition(" ")
            tokens = [ids.get(each, -1) for each in (left, right, left + right)]
            if -1 in tokens:
                raise ValueError(
                    "`merges` must be of two tokens of the vocabulary, which "
                    "together are a third. "
                    f"Received at index {rank}: {merge!r:.60}."
                )
            # Of a pair that occurs twice the last one counts.
            found[tokens[0] * self._size + tokens[1]] = rank, tokens[2]
        return found

    def cut(self, words: Any) -> Any:
        """Returns the tokens of words.

        Args:
            words: strings of shape (words,).

        Returns:
            Ragged int32 ids of shape (words, any).
        """
        import tensorflow as tf

        found = self._whole(words)
        is_whole = found >= 0
        whole = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(found, is_whole),
            tf.cast(is_whole, "int64"),
            validate=False,
        )
        # In a graph this becomes a part of it, so exports contain it.
        eager = tf.executing_eagerly()
        merge = self._merge_eagerly if eager else self._merge
        rest = merge(tf.where(is_whole, "", words))
        return tf.concat([whole, rest], 1)  # one of the two is empty

    def _merge(self, words: Any) -> Any:
        import tensorflow as tf

        count = tf.size(words)
        data = tf.io.decode_raw(tf.strings.reduce_join(words), "uint8")
        bytes_ = tf.gather(self._of_bytes, tf.cast(data, "int32"))
        word_of = tf.repeat(tf.range(count), tf.strings.length(words))
        if self._lacks_bytes:
            is_known = bytes_ >= 0
            bytes_ = tf.boolean_mask(bytes_, is_known)
            word_of = tf.boolean_mask(word_of, is_known)
        places = tf.range(tf.size(bytes_))

        def step(found: Any, tokens: Any, places: Any, rows: Any) -> Any:
            """Merges one pair of each word; words without a pair leave."""
            keys = tokens[:-1] * self._size + tokens[1:]
            at = tf.searchsorted(self._keys, keys)
            at = tf.minimum(at, tf.size(self._keys) - 1)
            is_pair = tf.gather(self._keys, at) == keys
            is_pair &= rows[:-1] == rows[1:]
            # The lowest rank, then the leftmost.
            order = tf.gather(self._ranks, at) * 2**32
            order += tf.range(tf.size(keys, tf.int64))
            order = tf.where(is_pair, order, _LARGEST)
            first = tf.math.unsorted_segment_min(order, rows[:-1], count)
            is_first = is_pair & (order == tf.gather(first, rows[:-1]))
            # The left token is replaced by the merged one, the right removed.
            both = tf.where(is_first, tf.gather(self._merged, at), tokens[:-1])
            tokens = tf.concat([both, tokens[-1:]], 0)
            is_gone = tf.concat([[False], is_first], 0)
            found = tf.tensor_scatter_nd_update(
                found,
                tf.expand_dims(places, 1),
                tf.where(is_gone, tf.constant(-1, "int64"), tokens),
            )
            stays = ~is_gone & (tf.gather(first, rows) < _LARGEST)
            stay = tf.squeeze(tf.where(stays), 1)
            return found, *(
                tf.gather(each, stay) for each in (tokens, places, rows)
            )

        found, *_ = tf.while_loop(
            lambda found, tokens, places, rows: tf.size(tokens) > 0,
            step,
            (bytes_, bytes_, places, word_of),
            shape_invariants=(tf.TensorShape([None]),) * 4,
        )
        is_token = found >= 0
        return tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.boolean_mask(found, is_token), "int32"),
            tf.math.unsorted_segment_sum(
                tf.cast(is_token, "int64"), word_of, count
            ),
            validate=False,
        )
