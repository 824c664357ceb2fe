"""Texts to learn a vocabulary from: an iterable or a dataset."""

from collections.abc import Iterator
from typing import Any

import numpy as np


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
