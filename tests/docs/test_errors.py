"""The index of errors: each message of the package has its cause and remedy."""

import ast
import collections
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def extensions():
    """The modules of the site's own extensions, which need no Sphinx."""
    sys.path.insert(0, str(ROOT / "docs" / "_extensions"))
    yield
    sys.path.pop(0)


def test_every_message_has_an_entry_and_every_entry_a_message():
    import raised
    import remedies

    entries = remedies.entries()
    first = collections.Counter()
    for error in raised.every():
        fitting = [n for n, each in enumerate(entries) if each.matches(error)]
        assert fitting, f"docs/errors.toml says nothing of {error}"
        first[fitting[0]] += 1
    stale = [each for n, each in enumerate(entries) if not first[n]]
    assert not stale
    for each in entries:
        assert each.cause.endswith("."), each
        assert each.remedy.endswith("."), each


def test_every_raise_is_read():
    """All but those that hand on an error, or another's words."""
    import raised

    helpers = {"_unsupported", "_unknown_head", "_conversion_error", "_refusal"}
    helpers |= {"unsupported", "_others", "_Unlike"}  # the last: of reports
    seen = 0
    for package in raised.PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text("utf-8")
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Raise) and isinstance(
                    node.exc, ast.Call
                ):
                    made = ast.unparse(node.exc.func)
                    words = [
                        part.value
                        for part in ast.walk(node.exc)
                        if isinstance(part, ast.Constant)
                        and isinstance(part.value, str)
                        and re.search("[a-z]{3} [a-z]", part.value)
                    ]
                    if words and made not in helpers:
                        seen += 1
                        read = list(raised.in_source("x", ast.unparse(node)))
                        assert read, (path, node.lineno)
    assert seen > 500
