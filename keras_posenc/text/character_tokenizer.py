"""Characters as tokens, as a layer."""

import collections
from collections.abc import Sequence
from typing import Any, Self

import keras

from keras_posenc.checks import check_positive_int
from keras_posenc.text._framed_tokenizer import FramedTokenizer
from keras_posenc.text.tokenizer_json import of_characters

_REPLACEMENT = "\ufffd"


@keras.saving.register_keras_serializable(package="keras_posenc")
class CharacterTokenizer(FramedTokenizer):
    """Turns strings into ids of their characters, and back.

    A character is a Unicode code point: nothing is folded, lowercased or
    composed. Id 0 is padding, 1 an unknown character, 2 the start of a text, 3
    its end (`pad_id`, `unknown_id`, `start_id`, `end_id`); the vocabulary's
    characters follow. Invalid UTF-8 becomes U+FFFD, which is unknown unless
    the vocabulary has it. An empty text is a start and an end.

    `detokenize` returns texts, up to the first end, with U+FFFD for unknown
    characters.

    The output carries the Keras mask `ids != 0`. The vocabulary is in the
    layer's config, so in the `.keras` file, and a constant in the graph, so in
    the SavedModel, whose operators are TensorFlow's own. The layer has no
    weights, runs on the CPU and cannot be compiled by XLA. On the JAX and
    PyTorch backends, which have no strings, it works outside models: on
    strings and in `dataset.map`.

    Args:
        vocabulary: the characters in the order of their ids, as a string or a
            sequence of strings of one character.
        sequence_length: number of ids per text: longer texts are cut, keeping
            the end, shorter ones padded. None pads to the longest text of the
            batch and cuts nothing.
        max_length: the most ids of a text, where `sequence_length` is None:
            longer texts are cut, and all are padded to the longest one.
        add_start: whether each text starts with `start_id`.
        add_end: whether each text ends with `end_id`.
        **kwargs: Keras' `name` and the like. Its `dtype` has no effect.

    Call arguments:
        inputs: strings of shape (batch,): a tensor, an array or a list.

    Returns:
        int32 ids of shape (batch, sequence_length), or (batch, longest).

    Raises:
        ValueError: if the vocabulary is empty, has a character twice or
            anything else than characters; if `sequence_length` is too short
            for an empty text; if the inputs are not strings of shape (batch,).

    Example:
        >>> from keras_posenc import CharacterTokenizer
        >>> tokenizer = CharacterTokenizer("0123456789월일 ")
        >>> ids = tokenizer(["5월 7일", "3/5"])
        >>> print(ids.numpy())
        [[ 2  9 14 16 11 15  3]
         [ 2  7  1  9  3  0  0]]
        >>> [text.decode() for text in tokenizer.detokenize(ids).numpy()]
        ['5월 7일', '3�5']
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
        # A tuple: Keras and TensorFlow would wrap a list to track its items.
        self.vocabulary = _characters(vocabulary)
        _check_characters(self.vocabulary)

    @classmethod
    def learn(
        cls, corpus: Any, vocabulary_size: int | None = None, **kwargs: Any
    ) -> Self:
        """Returns a tokenizer of the characters of a corpus.

        Args:
            corpus: iterable of strings, or a `tf.data.Dataset` of strings; read
                once, as a stream.
            vocabulary_size: the most tokens to keep, the four special ones
                included: the most frequent characters stay. None keeps all.
            **kwargs: as for the constructor.

        Returns:
            The tokenizer; its characters are in the order of their code points,
            whatever the order of the texts.

        Raises:
            TypeError: if the corpus is one string, or has anything else than
                strings.
            ValueError: if the corpus has no character, or `vocabulary_size`
                leaves space for none.

        Example:
            >>> from keras_posenc import CharacterTokenizer
            >>> CharacterTokenizer.learn(["to be", "or not"]).vocabulary
            (' ', 'b', 'e', 'n', 'o', 'r', 't')
        """
        from keras_posenc.text.corpus import texts_of

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

    def get_vocabulary(self) -> list[str]:
        """Returns the characters, in the order of their ids, from 4 on."""
        return list(self.vocabulary)

    def tokenizer_json(self) -> dict[str, Any]:
        return of_characters(self)

    def vocabulary_size(self) -> int:
        """Returns how many ids there are, the four special ones included."""
        return self.first_id + len(self.vocabulary)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocabulary": self.get_vocabulary()}


def _characters(vocabulary: Any) -> tuple[Any, ...]:
    try:
        return tuple(vocabulary)
    except TypeError:
        raise ValueError(
            "`vocabulary` must be a string, or a sequence of characters. "
            f"Received: vocabulary={vocabulary!r}."
        ) from None


def _check_characters(vocabulary: Sequence[Any]) -> None:
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
