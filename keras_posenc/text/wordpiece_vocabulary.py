"""WordPiece vocabularies: read from a file, checked, learned."""

import collections
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_posenc.text.corpus import check_dataset, strings_of

PAD, UNK, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP)
SUFFIX = "##"

# Words in one step of learning: large enough to hide a step's overhead.
_BATCH = 1024


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Reads a vocabulary file: UTF-8, one token a line.

    Args:
        path: the file; the number of a line, from 0, is the token's id.

    Returns:
        The tokens, in order.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    file = pathlib.Path(os.path.expanduser(path))
    if not file.is_file():
        raise FileNotFoundError(
            "`vocabulary` must be a list of tokens or the path of a file "
            f"with one token a line. Received: vocabulary={str(path)!r}, "
            "which is not a file."
        )
    # Not `splitlines`: it also breaks at characters that tokens may contain.
    # And not "utf-8": some editors put a mark at the beginning.
    with file.open(encoding="utf-8-sig") as lines:
        return [line.rstrip("\n") for line in lines]


def check_vocabulary(
    vocabulary: Sequence[str], special_tokens: Sequence[str]
) -> None:
    """Refuses a vocabulary that does not number each token once.

    Args:
        vocabulary: tokens in the order of their ids.
        special_tokens: those that it must hold.

    Raises:
        ValueError: if the vocabulary is empty, lacks a special token, or holds
            an empty or a repeated token or something that is not a string.
    """
    if not vocabulary:
        raise ValueError(
            "`vocabulary` must hold at least the special tokens "
            f"{', '.join(special_tokens)}. Received an empty vocabulary."
        )
    for index, token in enumerate(vocabulary):
        if not isinstance(token, str) or not token:
            raise ValueError(
                "`vocabulary` must hold non-empty strings. "
                f"Received at index {index}: {token!r}."
            )
    counts = collections.Counter(vocabulary)
    if repeated := [token for token, count in counts.items() if count > 1]:
        raise ValueError(
            "`vocabulary` must hold every token once. "
            f"Received more than once: {_name(repeated)}."
        )
    if missing := [token for token in special_tokens if token not in counts]:
        raise ValueError(
            "`vocabulary` must hold the special tokens "
            f"{', '.join(special_tokens)}. Missing: {', '.join(missing)}."
        )


def learn_vocabulary(
    corpus: Any, vocabulary_size: int, lowercase: bool
) -> list[str]:
    """Learns a vocabulary with TF-Text's WordPiece tool.

    The result depends only on how often each word occurs, never on the order
    of the texts. Every character that fits is kept, alone and as a suffix, so
    words without a token of their own still split into known pieces.

    Args:
        corpus: iterable of strings, or a `tf.data.Dataset` of string tensors.
            It is read once, in a stream.
        vocabulary_size: the most tokens to learn, special tokens included.
        lowercase: whether to lowercase and to strip accents first.

    Returns:
        The special tokens, the characters in alphabetical order, then the
        other tokens, the most frequent first.

    Raises:
        TypeError: if the corpus is one string, or holds something else.
        ValueError: if `vocabulary_size` is too small, or the corpus holds no
            word.
    """
    from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

    smallest = len(SPECIAL_TOKENS) + 2
    if vocabulary_size < smallest:
        raise ValueError(
            f"`vocabulary_size` must be at least {smallest}, for the special "
            "tokens and one character, alone and as a suffix. "
            f"Received: vocabulary_size={vocabulary_size}."
        )
    try:
        learned = bert_vocab_from_dataset.bert_vocab_from_dataset(
            _valid_batches(corpus),
            vocabulary_size,
            list(SPECIAL_TOKENS),
            bert_tokenizer_params={"lower_case": lowercase},
            learn_params={
                # The tool's own lowest count of 10 leaves a small corpus
                # with single characters only.
                "lower_thresh": 1,
                # Its own 1000 can exceed the whole vocabulary.
                "max_unique_chars": (vocabulary_size - len(SPECIAL_TOKENS))
                // 2,
            },
        )
    except StopIteration:  # the tool asks for the first of no words
        raise ValueError(
            "`corpus` must hold at least one word. Received none."
        ) from None
    if len(learned) == len(SPECIAL_TOKENS):
        raise ValueError(
            "`corpus` must hold a word of at most 50 characters that "
            "`vocabulary_size` leaves room to spell. Received none for "
            f"vocabulary_size={vocabulary_size}."
        )
    return _trim(learned, vocabulary_size)


def _valid_batches(corpus: Any) -> Any:
    """A dataset of string vectors, invalid UTF-8 replaced by U+FFFD."""
    import tensorflow as tf

    if isinstance(corpus, tf.data.Dataset):
        check_dataset(corpus)
        texts = corpus.map(lambda text: tf.reshape(text, (-1,))).unbatch()
    else:
        strings = strings_of(corpus)
        texts = tf.data.Dataset.from_generator(
            lambda: strings, output_signature=tf.TensorSpec((), tf.string)
        )
    return texts.batch(_BATCH).map(
        lambda batch: tf.strings.unicode_transcode(batch, "UTF-8", "UTF-8")
    )


def _trim(learned: Sequence[str], size: int) -> list[str]:
    """Drops the rarest tokens beyond `size`, but no single character.

    The tool searches for a count that gives about `size` tokens and may stop
    above it. It lists the characters first, but those that continue a word
    among the pieces, by their counts.
    """
    longest = len(SUFFIX) + 1
    kept = [t.startswith(SUFFIX) and len(t) == longest for t in learned]
    room = size - sum(kept)
    for index, keep in enumerate(kept):
        if not keep and room > 0:
            kept[index] = True
            room -= 1
    return list(itertools.compress(learned, kept))


def _name(values: Sequence[Any]) -> str:
    """The first few values, for an error sentence."""
    shown = ", ".join(repr(value)[:40] for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
