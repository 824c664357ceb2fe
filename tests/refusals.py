"""Tables of what is refused: calls, and below each what its error says."""

import re
import textwrap

import pytest


def table(text):
    """The calls of a table, each with the part of the message below it.

    Lines of one message are joined, and `...` in it stands for anything.
    """
    found = []
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith(" "):
            found[-1][1].append(line.strip())
        else:
            found.append((line, []))
    return [pytest.param(call, " ".join(said), id=call) for call, said in found]


def names(*modules):
    """The public names of modules, as a scope."""
    return {
        name: getattr(module, name)
        for module in modules
        for name in module.__all__
    }


def check(call, said, scope, error=ValueError):
    """The call, with the names of a scope, raises an error that says this."""
    pattern = re.escape(said).replace(r"\.\.\.", ".*")
    with pytest.raises(error, match=f"(?s){pattern}"):
        eval(call, dict(scope))
