"""Characters as tokens, as a layer."""

import collections
from collections.abc import Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.text._tokenizer import Tokenizer
from keras_posenc.text.tokenizer_file import of_bytes, of_characters


class FramedTokenizer(Tokenizer):
    """Base of tokenizers of padding, unknown, start and end, ids 0 to 3."""

    unknown_id, start_id, end_id = 1, 2, 3
    first_id = 4

    def __init__(
        self,
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        add_start: bool = True,
        add_end: bool = True,
        **kwargs: Any,
    ) -> None:
        # First: the base checks lengths against `frame`, which needs them.
        self.add_start = check_bool("add_start", add_start)
        self.add_end = check_bool("add_end", add_end)
        super().__init__(
            sequence_length=sequence_length, max_length=max_length, **kwargs
        )

    @property
    def frame(self) -> tuple[int, int]:
        return int(self.add_start), int(self.add_end)


@keras.saving.register_keras_serializable(package="keras_posenc")
class ByteTokenizer(FramedTokenizer):
    """Turns strings into ids of their bytes, and back; nothing is unknown.

    >>> from keras_posenc import ByteTokenizer
    >>> tokenizer = ByteTokenizer()
    >>> ids = tokenizer(["né", "a"])
    >>> print(ids.numpy())
    [[  2 114 199 173   3]
     [  2 101   3   0   0]]
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['né', 'a']

    Id 0 is padding, 2 the start of a text, 3 its end, and byte b is b + 4: 260
    ids in all. 1, which means unknown in a `CharacterTokenizer`, never occurs.
    All bytes have ids, valid UTF-8 or not. An empty text is a start and an end.

    `detokenize` returns texts, up to the first end. Where ids are not valid
    UTF-8, because a text was cut within a character or a model chose them, and
    for id 1, it returns U+FFFD.

    Inputs are single texts; outputs, mask, config and backends are as for
    `WordpieceTokenizer`. The operators are TensorFlow's own.

    Args:
        sequence_length: as for `WordpieceTokenizer`.
        max_length: the most ids of a text, where that is None.
        add_start: whether each text starts with `start_id`.
        add_end: whether each text ends with `end_id`.
        **kwargs: Keras' `name` and the like.

    References:
        - Xue et al. 2021, [ByT5](https://arxiv.org/abs/2105.13626)
    """

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        pieces = tf.strings.bytes_split(texts)  # (batch, any), of one byte each
        codes = tf.io.decode_raw(pieces.flat_values, tf.uint8)
        codes = tf.cast(tf.reshape(codes, (-1,)), "int32")
        return pieces.with_flat_values(codes + self.first_id)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        # No byte of UTF-8, so it becomes U+FFFD below.
        special = [b"\xff"] * self.first_id
        pieces = tf.constant([*special, *(bytes([b]) for b in range(256))])
        pieces = tf.where(kept, tf.gather(pieces, ids), "")
        return tf.strings.unicode_transcode(
            tf.strings.reduce_join(pieces, axis=-1), "UTF-8", "UTF-8"
        )

    def tokenizer_json(self) -> dict[str, Any]:
        return of_bytes(self)

    def vocabulary_size(self) -> int:
        """Returns how many ids there are: four, and one for each byte."""
        return self.first_id + 256


_REPLACEMENT = "\ufffd"


@keras.saving.register_keras_serializable(package="keras_posenc")
class CharacterTokenizer(FramedTokenizer):
    """Turns strings into ids of their characters, and back.

    >>> from keras_posenc import CharacterTokenizer
    >>> tokenizer = CharacterTokenizer("0123456789월일 ")
    >>> ids = tokenizer(["5월 7일", "3/5"])
    >>> print(ids.numpy())
    [[ 2  9 14 16 11 15  3]
     [ 2  7  1  9  3  0  0]]
    >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
    ['5월 7일', '3�5']

    A character is a Unicode code point: nothing is folded, lowercased or
    composed. Id 0 is padding, 1 an unknown character, 2 the start of a text, 3
    its end (`pad_id`, `unknown_id`, `start_id`, `end_id`); the vocabulary's
    characters follow. Invalid UTF-8 becomes U+FFFD, which is unknown unless
    the vocabulary has it. An empty text is a start and an end.

    `detokenize` returns texts, up to the first end, with U+FFFD for unknown
    characters.

    Inputs are single texts; outputs, mask, config and backends are as for
    `WordpieceTokenizer`. The operators are TensorFlow's own.

    Args:
        vocabulary: the characters in the order of their ids, as a string or a
            sequence of strings of one character.
        sequence_length: as for `WordpieceTokenizer`.
        max_length: the most ids of a text, where that is None.
        add_start: whether each text starts with `start_id`.
        add_end: whether each text ends with `end_id`.
        **kwargs: Keras' `name` and the like.

    Raises:
        ValueError: if the vocabulary is empty, has a character twice or
            anything else than characters.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        sequence_length: int | None = None,
        max_length: int | None = None,
        add_start: bool = True,
        add_end: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            sequence_length=sequence_length,
            max_length=max_length,
            add_start=add_start,
            add_end=add_end,
            **kwargs,
        )
        self.vocabulary = _characters(vocabulary)

    @classmethod
    def learn(
        cls, corpus: Any, vocabulary_size: int | None = None, **kwargs: Any
    ) -> Self:
        """Returns a tokenizer of the characters of a corpus.

        >>> from keras_posenc import CharacterTokenizer
        >>> CharacterTokenizer.learn(["to be", "or not"]).vocabulary
        (' ', 'b', 'e', 'n', 'o', 'r', 't')

        Args:
            corpus: iterable of strings, or a `tf.data.Dataset` of strings; read
                once, as a stream.
            vocabulary_size: the most tokens to keep, the four special ones
                included: the most frequent characters stay. None keeps all.
            **kwargs: as for the constructor.

        Returns:
            The tokenizer; its characters are in the order of their code points.
        """
        from keras_posenc.text.wordpiece_vocabulary import texts_of

        room = None
        if vocabulary_size is not None:
            size = check_positive_int("vocabulary_size", vocabulary_size)
            room = size - cls.first_id
            if room < 1:
                raise ValueError(
                    f"`vocabulary_size` must be at least {cls.first_id + 1}, "
                    "for padding, unknown, start, end and one character. "
                    f"Received: vocabulary_size={vocabulary_size}."
                )
        counts: collections.Counter[str] = collections.Counter()
        for text in texts_of(corpus):
            counts.update(text)
        if not counts:
            raise ValueError(
                "`corpus` must hold at least one character. Received none."
            )
        # Ties by code point, so that the order of texts does not matter.
        by_count = sorted(counts, key=lambda c: (-counts[c], c))
        return cls(sorted(by_count[:room]), **kwargs)

    def split(self, texts: Any) -> Any:
        import tensorflow as tf

        points = tf.strings.unicode_decode(texts, "UTF-8")  # (batch, any)
        codes = sorted(map(ord, self.vocabulary))
        ids = {ord(c): i for i, c in enumerate(self.vocabulary, self.first_id)}
        known = tf.constant(codes)
        flat = points.flat_values
        # No table: a graph would have to be given its resources first.
        place = tf.minimum(tf.searchsorted(known, flat), len(codes) - 1)
        found = tf.where(
            tf.gather(known, place) == flat,
            tf.gather(tf.constant([ids[code] for code in codes]), place),
            self.unknown_id,
        )
        return points.with_flat_values(found)

    def join(self, ids: Any, kept: Any) -> Any:
        import tensorflow as tf

        special = [_REPLACEMENT] * self.first_id
        characters = tf.gather(tf.constant([*special, *self.vocabulary]), ids)
        return tf.strings.reduce_join(tf.where(kept, characters, ""), axis=-1)

    def tokenizer_json(self) -> dict[str, Any]:
        return of_characters(self)

    def vocabulary_size(self) -> int:
        """Returns how many ids there are, the four special ones included."""
        return self.first_id + len(self.vocabulary)


def _characters(vocabulary: Any) -> tuple[Any, ...]:
    try:
        # A tuple: Keras and TensorFlow would wrap a list to track its items.
        vocabulary = tuple(vocabulary)
    except TypeError:
        raise ValueError(
            "`vocabulary` must be a string, or a sequence of characters. "
            f"Received: vocabulary={vocabulary!r}."
        ) from None
    if not vocabulary:
        raise ValueError(
            "`vocabulary` must hold at least one character. "
            "Received an empty vocabulary."
        )
    seen: set[str] = set()
    for index, character in enumerate(vocabulary):
        if not isinstance(character, str) or len(character) != 1:
            raise ValueError(
                "`vocabulary` must hold strings of one character. "
                f"Received at index {index}: {character!r}."
            )
        if "\ud800" <= character <= "\udfff":
            raise ValueError(
                "`vocabulary` must hold characters that UTF-8 can spell. "
                f"Received at index {index}: {character!r}."
            )
        if character in seen:
            raise ValueError(
                "`vocabulary` must hold every character once. "
                f"Received more than once: {character!r}."
            )
        seen.add(character)
    return vocabulary
