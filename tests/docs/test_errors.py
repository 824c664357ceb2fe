"""The index of errors: each message of the package has its cause and remedy."""

import collections
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_message_has_an_entry_and_every_entry_a_message(monkeypatch):
    # The site's own extensions, which need no Sphinx.
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
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
