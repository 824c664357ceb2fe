"""Files of tokenizers and checkpoints of unknown authors: reading, limits."""

import io
import json
import math
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 2**20  # the largest tokenizers have 20 MB
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def shown(value: Any) -> str:
    """Returns a value for a message: short, however large or nested it is."""
    try:
        return f"{value!r:.100}"
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file."""
    size = path.stat().st_size
    if size <= MOST_BYTES:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)  # it may grow meanwhile
        size = len(content)
    if size > MOST_BYTES:
        raise ValueError(
            f"'{path}' has {size / 2**20:.0f} MB, more than any known file of "
            "its kind"
        )
    return content


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Returns the text of a file, with line feeds as its only line ends."""
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding).read()
    except UnicodeDecodeError as error:
        raise ValueError(f"'{path}' is not UTF-8 text: {error}") from error


def lines_of(text: str) -> list[str]:
    """Returns the lines of a text, whether or not the last one is ended."""
    # Not `splitlines`: it also splits at characters that tokens may contain.
    return text.removesuffix("\n").split("\n") if text else []


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file."""
    text = read_text(path)
    try:
        found = json.loads(text)
        if _HALF.search(text):  # usually both halves are there
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"'{path}' has half of a character, {error.object[error.start]!r}, "
            "which is not text: a lone surrogate"
        ) from error
    except RecursionError as error:
        raise ValueError(
            f"'{path}' is not a JSON file that can be read: its values are "
            "nested too deeply"
        ) from error
    except ValueError as error:
        raise ValueError(f"'{path}' is not a JSON file: {error}") from error
    return found


# Characters of a token. The longest of known tokenizers have some hundred.
LONGEST = 1000


def check_tokens(name: str, tokens: Iterable[str]) -> None:
    """Raises `ValueError` for a token that native code cannot have."""
    for index, token in enumerate(tokens):
        if not token or "\0" in token or len(token) > LONGEST:
            raise ValueError(
                f"`{name}` must hold tokens of 1 to {LONGEST:,} characters, "
                f"none of them a zero byte. Received at index {index}: "
                f"{len(token):,} characters, {token!r:.40}."
            )


def check_scores(scores: Iterable[float]) -> None:
    """Raises `ValueError` for a score of a piece that is not finite."""
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise ValueError(
                "`model` must have pieces with finite scores. "
                f"Received at index {index}: {score}."
            )


def check_rules(rules: bytes) -> None:
    """Raises `ValueError` for rules of a normalizer that are not whole.

    They are a length, a trie of as many bytes, and texts ended by zero bytes.
    """
    if not rules:
        return
    size = struct.unpack_from("<I", rules)[0] if len(rules) >= 4 else 0
    if not 0 < size <= len(rules) - 5 or size % 4 or rules[-1]:
        raise ValueError(
            "`model` must have a `precompiled_charsmap` that is whole. "
            f"Received: {len(rules):,} bytes, whose trie should have {size:,}."
        )
