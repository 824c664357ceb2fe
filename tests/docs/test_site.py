"""The built site in Chromium: `make test-docs`. Screenshots: build/docs/."""

import json
import re
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
        assert "keras_posenc" in page["title"], path
        assert page["words"] > 40 or path in EMPTY, path
        assert page["bytes"] < MOST_BYTES, (path, page["bytes"])
    heavy = sorted(pages, key=lambda path: -pages[path]["bytes"])
    for path in ("docs/index.html", *heavy[:5]):
        page = pages[path]
        print(
            f"{page['bytes'] / 1e3:7.0f} kB {page['milliseconds']:5} ms {path}"
        )


@pytest.mark.parametrize(
    ("folder", "language"), [("ko", "ko"), ("course", "en")]
)
def test_a_page_says_its_language_and_leads_on_in_it(folder, language):
    pages = sorted((SITE / "docs" / folder).glob("*.html"))
    if not pages:
        pytest.skip("build/site is missing: make docs")
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert re.search(rf'<html[^>]* lang="{language}"', html), page
        onward = re.findall(r'(?:next|prev)-page" href="([^"]+)"', html)
        assert onward, page
        for link in onward:
            to = (page.parent / link).resolve()
            korean = to.parent.name == "ko" or to.stem.endswith(".ko")
            assert korean == (language == "ko"), (page, link)
        for text in re.findall(r'<img[^>]* alt="([^"]*)"', html):
            assert re.fullmatch(r".+ .+(?<![.]png)", text), page


@pytest.mark.parametrize("page", ["docs/ko/03-sinusoid", "README.ko"])
def test_what_surrounds_a_korean_page_is_korean(page):
    path = SITE / f"{page}.html"
    if not path.is_file():
        pytest.skip("build/site is missing: make docs")
    html = path.read_text(encoding="utf-8")
    # What code calls by names, and the menu of all pages, stays as it is.
    around = re.sub(
        r'(?s)<article.*</article>|<div class="sidebar-tree">.*?</aside>'
        r"|<(style|script|code)\b.*?</\1>|<!--.*?-->",
        "",
        html,
    )
    labels = re.findall(r'(?:aria-label|placeholder|title)="([^"]*)"', around)
    labels += re.findall(r">([^<>]*)<", around)
    labels += re.findall(r'"((?:Toggle|Link to this) [^"]*)"', html)
    english = {
        word
        for label in labels
        if not re.search("[가-힣]", label)
        for word in re.findall("[A-Za-z_]+", label)
    }
    assert english <= {"keras_posenc", "Furo", "latest"}


@pytest.mark.parametrize("page", ["docs/ko/03-sinusoid", "README.ko"])
def test_menu_of_a_korean_page_is_korean(page):
    path = SITE / f"{page}.html"
    if not path.is_file():
        pytest.skip("build/site is missing: make docs")
    html = path.read_text(encoding="utf-8")
    menu = re.search(r'(?s)<div class="sidebar-tree">.*?</aside>', html)[0]
    entries = re.findall(r'<a class="[^"]*reference[^>]*>([^<]+)</a>', menu)
    assert len(entries) > 10
    assert all(re.search("[가-힣]", entry) for entry in entries), entries


def test_reference_has_arguments_formulas_and_sources():
    folder = SITE / "docs" / "reference"
    if not folder.is_dir():
        pytest.skip("build/site is missing: make docs")
    html = (folder / "positional.html").read_text(encoding="utf-8")
    text = re.sub("<[^>]*>", "", html)
    assert re.search(r"PositionalEncoding\(\s*\*,\s*max_wavelength", text)
    assert html.count("<math") > 10
    assert "max_wavelength **" not in html
    sources = re.findall(r'href="([^"#]*_modules/[^"#]+)', html)
    assert len(sources) > 10
    assert all((folder / source).resolve().is_file() for source in sources)
    icon = re.search('<link rel="shortcut icon" href="([^"]*favicon.svg)', html)
    assert (folder / icon[1]).resolve().is_file()


def test_navigation_by_keyboard(at):
    tabs = at["used"]["tabs"]
    places = [tab["what"] for tab in tabs]
    assert all(tab["seen"] for tab in tabs), tabs  # nothing in a closed menu
    assert any("skip-to-content" in place for place in places[:3])
    if at["used"]["opened"] is None:  # a wide page has its menu beside it
        assert any("sidebar-search" in place for place in places)
        assert any("reference internal" in place for place in places)
    else:
        assert any("sidebar-toggle" in place for place in places)
        assert at["used"]["opened"]
    assert at["used"]["title"].startswith("Which position?")


def test_search_finds_a_name(shown):
    found = shown[1280]["used"]["found"]
    assert any("reference/positional.html" in each["to"] for each in found)
    assert any("RotaryEmbedding" in each["text"] for each in found)


def test_another_version_is_chosen(shown):
    assert tuple(shown[1280]["used"]["offered"]) == VERSIONS


def test_dark_and_light(at):
    """By the button, and as the system asks."""

    def brightness(colour):
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    assert brightness(at["used"]["light"]) > 200
    assert brightness(at["used"]["dark"]) < 60
    assert brightness(at["used"]["asked"]) < 60


@pytest.mark.parametrize("name", ["sinusoid", "attention", "extrapolation"])
def test_pictures_answer_the_keyboard(at, name):
    found = at["used"]["pictures"][name]
    assert found["redrawn"]
    if name != "extrapolation":
        assert found["before"] != found["after"]
    assert at["used"]["wrong"] == []
