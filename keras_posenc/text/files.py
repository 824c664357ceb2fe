"""Files of tokenizers and checkpoints, which anybody may have made."""

import io
import json
import re
from pathlib import Path
from typing import Any

_MOST_BYTES = 256 * 2**20  # the largest tokenizers have 20 MB
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def shown(value: Any) -> str:
    """What a file holds, for a message: of any size, and nested as deeply."""
    try:
        return f"{value!r:.100}"
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def read_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        ValueError: It has more than 256 MB.
    """
    size = path.stat().st_size
    if size <= _MOST_BYTES:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)  # it may have grown since
        size = len(content)
    if size > _MOST_BYTES:
        raise ValueError(
            f"'{path}' has {size / 2**20:.0f} MB, more than any known file of "
            "its kind"
        )
    return content


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file, its lines ended by line feeds alone.

    Raises:
        ValueError: It has more than 256 MB, or is not UTF-8.
    """
    try:
        return io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding).read()
    except UnicodeDecodeError as error:
        raise ValueError(f"'{path}' is no text in UTF-8: {error}") from error


def lines_of(text: str) -> list[str]:
    """The lines of a text, of which the last one may end or not."""
    # Not `splitlines`: it also breaks at characters that tokens may contain.
    return text.removesuffix("\n").split("\n") if text else []


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        ValueError: It has more than 256 MB, is no JSON, is nested too deeply,
            or holds half of a surrogate pair, which is no text.
    """
    text = read_text(path)
    try:
        found = json.loads(text)
        if _HALF.search(text):  # of most pairs both halves are there
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"'{path}' holds half of a character, {error.object[error.start]!r}"
            ", which is no text: a lone surrogate"
        ) from error
    except RecursionError as error:
        raise ValueError(
            f"'{path}' is no JSON file that can be read: its values are nested "
            "too deeply"
        ) from error
    except ValueError as error:
        raise ValueError(f"'{path}' is no JSON file: {error}") from error
    return found
