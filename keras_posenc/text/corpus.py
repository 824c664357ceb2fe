"""Texts to learn a vocabulary from: an iterable or a dataset."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any


def strings_of(corpus: Iterable[Any]) -> Iterable[str | bytes]:
    """Returns an iterable of strings, after checking its first element."""
    if isinstance(corpus, str | bytes):
        raise TypeError(
            "`corpus` must be an iterable of strings or a `tf.data.Dataset` "
            f"of strings. Received one string: {corpus!r:.40}."
        )
    texts = iter(corpus)
    first = next(texts, "")
    if not isinstance(first, str | bytes):
        raise TypeError(
            "`corpus` must hold strings. "
            f"Received a first element of type {type(first).__name__}."
        )
    return itertools.chain([first], texts)


def check_dataset(corpus: Any) -> None:
    """Raises `TypeError` for a `tf.data.Dataset` of anything but strings."""
    import tensorflow as tf

    spec = corpus.element_spec
    if not isinstance(spec, tf.TensorSpec) or spec.dtype != tf.string:
        raise TypeError(
            "`corpus` must hold strings. "
            f"Received a dataset with elements: {spec}."
        )


def texts_of(corpus: Any) -> Iterator[str]:
    """Yields the texts of a corpus, with U+FFFD for invalid UTF-8."""
    import tensorflow as tf

    if isinstance(corpus, tf.data.Dataset):
        check_dataset(corpus)
        corpus = (
            text
            for element in corpus.as_numpy_iterator()
            for text in ([element] if isinstance(element, bytes) else element)
        )
    for text in strings_of(corpus):
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        if not isinstance(text, str):
            raise TypeError(
                "`corpus` must hold strings. "
                f"Received an element of type {type(text).__name__}."
            )
        yield text
