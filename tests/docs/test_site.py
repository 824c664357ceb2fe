"""The built site in Chromium: `make test-docs`. Screenshots: build/docs/."""

import json
from pathlib import Path

import pytest

from tests.web.browsing import HERE, browser, drive

# In a browser, and of what `make docs` has built.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
VERSIONS = ("latest", "v0.1.0")
WIDTHS = (390, 1280)
# Sphinx's own: an index of names, and the page that a search fills.
EMPTY = {"genindex.html", "search.html", "py-modindex.html"}
MOST_BYTES = 900_000  # of a page with all that it loads, its pictures too


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    if not SITE.is_dir():
        pytest.skip("build/site is missing: make docs")
    browser(HERE)
    pages = sorted(
        path.relative_to(SITE).as_posix()
        for path in SITE.rglob("*.html")
        if "_static" not in path.parts
        and path != SITE / "index.html"  # which only leads on
    )
    published = tmp_path_factory.mktemp("published")
    for version in VERSIONS:
        (published / version).symlink_to(SITE)
    (published / "versions.json").write_text(json.dumps(VERSIONS))
    report = drive(
        "drive_site.mjs",
        tmp_path_factory.mktemp("site"),
        published,
        folders=(HERE,),
        out=ROOT / "build" / "docs",
        version=VERSIONS[0],
        other=VERSIONS[1],
        pages=pages,
        widths=WIDTHS,
    )
    return {int(width): found for width, found in report.items()}


@pytest.fixture(params=WIDTHS)
def at(request, shown):
    return shown[request.param]


def test_every_page_is_whole(at):
    """No errors, no requests elsewhere, no missing picture, nothing cut off."""
    pages = at["visited"]["pages"]
    assert at["visited"]["wrong"] == []
    assert len(pages) > 30
    for path, page in pages.items():
        assert page["broken"] == [], path
        assert page["unnamed"] == [], path
        assert page["tooWide"] <= 0, path
        assert page["cut"] == [], path
        assert page["torn"] == [], path
        assert "keras_posenc" in page["title"], path
        assert page["words"] > 40 or path in EMPTY, path
        assert page["bytes"] < MOST_BYTES, (path, page["bytes"])


def test_search_finds_a_name_also_of_another_library_and_a_message(shown):
    found = shown[1280]["used"]["found"]
    ours = found["RotaryEmbedding"]
    assert any("reference/positional.html" in each["to"] for each in ours)
    assert any("RotaryEmbedding" in each["text"] for each in ours)
    (theirs,) = found["SinePositionEncoding"]
    assert "peers.html" in theirs["to"]
    message = found["warm-up request fails"]
    assert any("errors/export.html" in each["to"] for each in message)


def test_another_version_is_chosen(shown):
    assert tuple(shown[1280]["used"]["offered"]) == VERSIONS


@pytest.mark.parametrize("name", ["sinusoid", "attention", "extrapolation"])
def test_pictures_answer_the_keyboard(at, name):
    found = at["used"]["pictures"][name]
    assert found["redrawn"]
    if name != "extrapolation":
        assert found["before"] != found["after"]
    assert at["used"]["wrong"] == []
