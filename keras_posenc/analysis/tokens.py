"""Tokens as labels in pictures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

_NAMES = ("start", "end", "unknown")
# Characters that would be invisible.
_BLANKS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"})


def token_labels(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Returns the label of each id.

    Args:
        tokenizer: A tokenizer of this package, or a layer with `detokenize`
            and `vocabulary_size`; None gives the numbers.
        ids: The ids.

    Returns:
        The text of each id; `<start>`, `<end>` and `<unknown>` for those; and
        `#7` for an id that is not a text by itself, such as one byte of a
        longer character, or that is not in the vocabulary.

    Example:
        >>> import keras_posenc as kp
        >>> from keras_posenc.analysis import token_labels
        >>> token_labels(kp.CharacterTokenizer("ab "), [2, 4, 6, 5, 3])
        ['<start>', 'a', '␣', 'b', '<end>']
    """
    if tokenizer is None:
        return [str(each) for each in ids]
    named = {
        each: f"<{name}>"
        for name in _NAMES
        if (each := getattr(tokenizer, f"{name}_id", None)) is not None
    }
    size = tokenizer.vocabulary_size()
    # A model may have more ids than its tokenizer.
    rows = np.array([each if each < size else 0 for each in ids], "int32")
    rows = rows.reshape(-1, 1)
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        for text in np.asarray(tokenizer.detokenize(rows)).tolist()
    ]
    return [
        named.get(each)
        or (f"#{each}" if not text or "\ufffd" in text else text).translate(
            _BLANKS
        )
        for each, text in zip(ids, texts, strict=True)
    ]


def ids_of(
    tokenizer: Any,
    text: Any,
    argument: str,
    *,
    side: str = "source",
    pad_id: int = 0,
) -> list[int]:
    """Returns the ids of a text, or the ids given, without padding.

    Raises:
        ValueError: No text although there is a tokenizer, no ids although
            there is none, or an empty text.
    """
    if tokenizer is None:
        ids = np.asarray(ops.convert_to_numpy(text))
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise ValueError(
                f"`{argument}` must be ids of shape (seq,): the generator has "
                f"no {side}_tokenizer. Received: {argument}={text!r}"
            )
    elif not isinstance(text, str):
        raise ValueError(
            f"`{argument}` must be a text. Received: {argument}={text!r}"
        )
    else:
        ids = np.asarray(ops.convert_to_numpy(tokenizer([text])))[0]
    found = [int(each) for each in ids if each != pad_id]
    if not found:
        raise ValueError(f"`{argument}` must not be empty. Received none")
    return found
