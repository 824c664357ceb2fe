"""Byte pair encoding of words, in TensorFlow."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.text.lookup import Lookup

# Longest token that is looked up, in bytes; longer ones (few) are merged.
_LONGEST = 128
# Longer words are merged in pieces of twice as many bytes, see `_in_pieces`.
_HALF = 32
# Bytes that are merged in Python before there is a table of words: as long as
# it takes to make one, and a graph that merges.
_FEW = 20_000
# Longer words are not: in Python a word takes time by the square of its length.
_LONG = 2_000
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
_SPELLED = re.compile(f"[{re.escape(''.join(BYTES))}]*")
_TO_BYTES = str.maketrans(BYTES)


def spelled_bytes(token: str) -> bytes:
    """Returns the bytes of a token; UTF-8 for one not spelled that way."""
    if _SPELLED.fullmatch(token):
        return token.translate(_TO_BYTES).encode("latin-1")
    return token.encode()


class BytePairs:
    """Splits words into tokens.

    A word starts as its bytes. Of all neighboring pairs the one whose merge
    is the first in the list becomes one token (the leftmost, if several are
    equal), until no pair has a merge. All words are processed at once: each
    step merges one pair of each, or all equal pairs of each where that makes
    no difference. Long words are cut into pieces first. A byte without an id is
    left out of the words, as in the library "tokenizers".
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
        self._left = _FEW  # bytes that are merged in Python
        self._size = 1 + max(ids.values())
        # A key that no pair has, so that the search is never empty.
        known = {-1: (0, 0), **self._numbered(ids, merges)}
        keys = sorted(known)
        ranks, merged = np.array([known[key] for key in keys], np.int64).T
        # Where a merge makes a token that is part of an earlier merge, this one
        # comes next, so only one pair may be merged at once: the key is odd.
        first = np.full(self._size, _LARGEST)
        for part in np.divmod(keys, self._size):
            np.minimum.at(first, part, ranks)
        orders = ranks << 32 | (first[merged] < ranks)
        of_bytes = [
            ids.get(c, -1) for c in sorted(BYTES, key=BYTES.__getitem__)
        ]
        self._lacks_bytes = -1 in of_bytes
        # Constants, made here once and on the CPU, where strings are. Sorted
        # arrays, not tables: a graph would have to be given those resources.
        with tf.init_scope(), tf.device("CPU:0"):
            self._keys = tf.constant(keys, "int64")
            self._orders, self._merged = (
                tf.constant(orders),
                tf.constant(merged),
            )
            self._of_bytes = tf.constant(of_bytes, "int64")
            # As a graph: in Python, a step takes a hundred times as long.
            self._merge_eagerly = tf.function(
                self._merge,
                input_signature=[tf.TensorSpec([None], tf.string)],
                autograph=False,  # its loops are TensorFlow's own
            )
        self._ids, self._ignores_merges = ids, ignore_merges

    @functools.cached_property
    def _whole(self) -> Lookup:
        """The words that are one token: most words of a text."""
        import tensorflow as tf

        # Tokens that are not spelled as bytes match none.
        known_words = {
            spelled_bytes(token): number
            for token, number in self._ids.items()
            if _SPELLED.fullmatch(token)
            and (self._ignores_merges or len(token) <= _LONGEST)
        }
        with tf.init_scope(), tf.device("CPU:0"):
            words = tf.constant([*known_words])
            numbers = tf.constant([*known_words.values()], "int32")
            if not self._ignores_merges:
                is_whole = self._merge_eagerly(words).row_lengths() == 1
                words = tf.boolean_mask(words, is_whole)
                numbers = tf.boolean_mask(numbers, is_whole)
            found = zip(words.numpy(), numbers.numpy().tolist(), strict=True)
        return Lookup(dict(found), -1)

    def _numbered(
        self, ids: Mapping[str, int], merges: Sequence[str]
    ) -> dict[int, tuple[int, int]]:
        """Returns rank and token of each pair, by its key."""
        found = {}
        for rank, merge in enumerate(merges):
            left, _, right = merge.partition(" ")
            try:
                key = ids[left] * self._size + ids[right]
                # Of a pair that occurs twice the last one counts.
                found[key] = rank, ids[left + right]
            except KeyError:
                raise ValueError(
                    "`merges` must be of two tokens of the vocabulary, which "
                    "together are a third. "
                    f"Received at index {rank}: {merge!r:.60}."
                ) from None
        return found

    def cut(self, words: Any) -> Any:
        """Returns the tokens of words."""
        import tensorflow as tf

        eager = tf.executing_eagerly()
        if eager and not self._ignores_merges and "_whole" not in vars(self):
            listed = words.numpy()
            self._left -= sum(map(len, listed))
            if self._left >= 0 and max(map(len, listed), default=0) <= _LONG:
                return self._merged_in_python(listed)
        found = self._whole(words)
        is_whole = found >= 0
        whole = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(found, is_whole),
            tf.cast(is_whole, "int64"),
            validate=False,
        )
        # In a graph this becomes a part of it, so exports contain it.
        merge = self._merge_eagerly if eager else self._merge
        rest = merge(tf.where(is_whole, "", words))
        return tf.concat([whole, rest], 1)  # one of the two is empty

    def _merged_in_python(self, words: Sequence[bytes]) -> Any:
        import tensorflow as tf

        constants = self._keys, self._orders, self._merged, self._of_bytes
        keys, orders, merged, of_bytes = (each.numpy() for each in constants)
        found = []
        for word in words:
            tokens = of_bytes[np.frombuffer(word, "uint8")]
            tokens = tokens[tokens >= 0]
            while len(tokens) > 1:
                pairs = tokens[:-1] * self._size + tokens[1:]
                at = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
                order = np.where(keys[at] == pairs, orders[at], _LARGEST)
                first = order.argmin()
                if order[first] == _LARGEST:
                    break
                tokens[first] = merged[at[first]]
                tokens = np.delete(tokens, first + 1)
            found.append(tokens)
        return tf.RaggedTensor.from_row_lengths(
            tf.constant([x for each in found for x in each], "int32"),
            tf.constant([*map(len, found)], "int64"),
            validate=False,
        )

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
        found = self._in_pieces(bytes_, word_of, count)
        is_token = found >= 0
        return tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.boolean_mask(found, is_token), "int32"),
            tf.math.unsorted_segment_sum(
                tf.cast(is_token, "int64"), word_of, count
            ),
            validate=False,
        )

    def _in_pieces(self, tokens: Any, word_of: Any, count: Any) -> Any:
        """Merges words, of which long ones are cut into pieces.

        A merge looks at two neighbors only. So a list of tokens is that of a
        word if each two neighbors in it are the tokens of what they spell:
        the first merge across an end of a token would happen in these two
        alone too (https://github.com/github/rust-gems, crate `bpe`). A long
        word is cut twice, the second time in the middle of the first pieces.
        Of the two lists of tokens, the result is the one whose cut is farther
        away. It changes from one list to the other at a token that both have,
        so that neighbors are always from one piece. Words without such a
        token in each half of a piece are merged again, in larger pieces.
        """
        import tensorflow as tf

        numbers = tf.range(tf.size(tokens))
        lengths = tf.math.bincount(word_of, minlength=count, maxlength=count)
        at = numbers - tf.gather(tf.cumsum(lengths, exclusive=True), word_of)
        last = tf.gather(lengths, word_of) - 1

        def attempt(half: Any, found: Any, places: Any) -> Any:
            start, at_, last_, word = (
                tf.gather(each, places) for each in (tokens, at, last, word_of)
            )
            number = tf.range(tf.size(places))
            part, last_part = at_ // half, last_ // half
            is_cut = last_part > 1
            again = tf.where(is_cut)
            in_middle = (at_ == 0) | ((at_ + half) % (2 * half) == 0)
            is_first = at_ % (2 * half) == 0
            # Both lists at once: the number of steps is that of one.
            is_first = tf.concat([is_first, tf.gather_nd(in_middle, again)], 0)
            both = self._tokens_of(
                tf.concat([start, tf.gather_nd(start, again)], 0),
                tf.cumsum(tf.cast(is_first, "int32")) - 1,
            )
            one, other = both[: tf.size(places)], both[tf.size(places) :]
            other = tf.tensor_scatter_nd_update(one, again, other)
            common = is_cut & (one == other) & (one >= 0)
            # Where each half changes from one list to the other.
            half_of = tf.cumsum(tf.cast(at_ % half == 0, "int32")) - 1
            change = tf.math.unsorted_segment_min(
                tf.where(common, number, number.dtype.max),
                half_of,
                tf.size(places),
            )
            change = tf.gather(change, half_of)
            is_of_one = (part == 0) | ((part % 2 == 0) != (number < change))
            found = tf.tensor_scatter_nd_update(
                found,
                tf.expand_dims(places, 1),
                tf.where(is_of_one, one, other),
            )
            is_lost = is_cut & (0 < part) & (part < last_part)
            is_lost &= change == number.dtype.max
            lost = tf.math.unsorted_segment_max(
                tf.cast(is_lost, "int32"), word, count
            )
            return (
                4 * half,
                found,
                tf.boolean_mask(places, tf.gather(lost, word) > 0),
            )

        _, found, _ = tf.while_loop(
            lambda half, found, places: tf.size(places) > 0,
            attempt,
            (tf.constant(_HALF), tokens, numbers),
            shape_invariants=(
                tf.TensorShape([]),
                *(tf.TensorShape([None]),) * 2,
            ),
        )
        return found

    def _tokens_of(self, tokens: Any, word_of: Any) -> Any:
        """Returns the token that starts at each byte, or -1."""
        import tensorflow as tf

        count = tf.size(tokens)

        def step(found: Any, tokens: Any, places: Any, rows: Any) -> Any:
            """Merges pairs of each word; words without a pair leave."""
            keys = tokens[:-1] * self._size + tokens[1:]
            at = tf.searchsorted(self._keys, keys)
            at = tf.minimum(at, tf.size(self._keys) - 1)
            is_pair = tf.gather(self._keys, at) == keys
            is_pair &= rows[:-1] == rows[1:]
            # The lowest rank, then the leftmost; or all of the lowest rank.
            number = tf.range(tf.size(keys, tf.int64))
            order = tf.gather(self._orders, at)
            order += order % 2 * 2 * number
            order = tf.where(is_pair, order, _LARGEST)
            first = tf.math.unsorted_segment_min(order, rows[:-1], count)
            is_first = is_pair & (order == tf.gather(first, rows[:-1]))
            # Of a token that is there n times, every second pair.
            gaps = tf.concat([[-1], tf.squeeze(tf.where(~is_first), 1)], 0)
            gap = tf.gather(gaps, tf.cumsum(tf.cast(~is_first, "int32")))
            is_first &= (number - gap) % 2 == 1
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
            (tokens, tokens, tf.range(count), word_of),
            shape_invariants=(tf.TensorShape([None]),) * 4,
        )
        return found
