"""Tables of what is refused: calls, and below each what its error says."""

import re
import textwrap
from typing import Any

import pytest


def table(text: str) -> list[Any]:
    """The calls of a table, each with the part of the message below it.

    Lines of one message are joined, and `...` in it stands for anything.
    """
    found: list[tuple[str, list[str]]] = []
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            found.append((line, []))
    return [pytest.param(call, " ".join(said), id=call) for call, said in found]


def check(call: str, said: str, scope: Any, error: Any = ValueError) -> None:
    """The call, with the names of a scope, raises an error that says this."""
    pattern = re.escape(said).replace(r"\.\.\.", ".*")
    with pytest.raises(error, match=f"(?s){pattern}"):
        eval(call, dict(scope))
