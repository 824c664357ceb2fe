"""WordPiece vocabularies: reading and checking."""

import collections
import os
import pathlib
import re
from collections.abc import Iterable, Sequence

from keras_posenc.text.bounds import check_tokens
from keras_posenc.text.files import lines_of, read_text, shown

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
