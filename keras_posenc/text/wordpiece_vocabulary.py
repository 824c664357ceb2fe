"""WordPiece vocabularies: read from a file, and checked."""

import collections
import os
import pathlib
from collections.abc import Sequence
from typing import Any

PAD, UNK, CLS, SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP)
SUFFIX = "##"


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


def _name(values: Sequence[Any]) -> str:
    """The first few values, for an error sentence."""
    shown = ", ".join(repr(value)[:40] for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
