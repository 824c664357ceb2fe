"""The pages of errors: each message of the package has its cause and remedy."""

import collections
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_message_has_a_page_and_an_entry_and_no_entry_is_stale(
    monkeypatch,
):
    # The site's own extensions, which need no Sphinx.
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    import raised

    texts = [page.read_text("utf-8") for page in DOCS.glob("errors/*.md")]
    places = [re.search(r"\{errors\} (\S+)", text)[1] for text in texts]
    entries = raised.entries()
    first = collections.Counter()
    for error in raised.every():
        fitting = [n for n, each in enumerate(entries) if each.matches(error)]
        assert fitting, f"docs/errors.toml says nothing of {error}"
        first[fitting[0]] += 1
        pages = [place for place in places if re.match(place, error.place)]
        assert len(pages) == 1, f"{error} must be on one page of docs/errors/"
    stale = [each for n, each in enumerate(entries) if not first[n]]
    assert not stale
