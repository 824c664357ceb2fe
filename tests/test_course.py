"""The Korean pages are the English ones: same code, numbers and links."""

import importlib
import itertools
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in (DOCS / "ko").glob("*.md"))
# Each English page, and the Korean one that says the same.
PAIRS = [(DOCS / "course" / name, DOCS / "ko" / name) for name in PAGES]
PAIRS.append((ROOT / "README.md", ROOT / "README.ko.md"))

FENCED = re.compile(r"(?ms)^(`{3,})([^\n`]*)\n(.*?)^\1$\n?")
HEADING = re.compile(r"(?m)^(#{1,6}) .+$")
LINK = re.compile(r"\]\(([^)\s]+)")
NAME = re.compile(r"\{py:\w+\}`~?([\w.]+)`")
HANGUL = re.compile("[가-힣]")
# Neither of names, such as "int8" and "bfloat16", nor of links.
NUMBER = re.compile(r"(?<![\w.])[−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")


def read(page):
    return page.read_text(encoding="utf-8")


def sections(text):
    """The level of each heading, and the numbers up to the next one, sorted.

    Two languages have another order of words, and of numbers with them.
    """
    prose = LINK.sub("", FENCED.sub("", text))
    starts = [heading.start() for heading in HEADING.finditer(prose)]
    parts = [prose[a:b] for a, b in itertools.pairwise([*starts, None])]
    return [(part.index(" "), sorted(NUMBER.findall(part))) for part in parts]


def links(text):
    """Where a page leads: to a page's twin is to the page."""
    found = (
        link.replace("README.ko.md", "README").replace("README.md", "README")
        for link in LINK.findall(FENCED.sub("", text))
    )
    return sorted(
        re.sub(r"(docs|\.\.)/ko/", r"\1/course/", each) for each in found
    )


def test_each_page_has_its_twin():
    assert {path.name for path in (DOCS / "course").glob("*.md")} == {*PAGES}
    assert len(PAGES) > 10


@pytest.mark.parametrize(
    ("english", "korean"), PAIRS, ids=[pair[1].name for pair in PAIRS]
)
def test_both_languages_say_the_same(english, korean):
    here, there = read(english), read(korean)
    assert [block[2:] for block in FENCED.findall(there)] == [
        block[2:] for block in FENCED.findall(here)
    ]
    assert sections(there) == sections(here)
    assert links(there) == links(here)
    assert NAME.findall(there) == NAME.findall(here)
    assert len(HANGUL.findall(there)) > 100
    assert len(HANGUL.findall(here)) < 10


def test_names_in_the_reference_exist():
    names = {
        name
        for page in PAGES
        for name in NAME.findall(read(DOCS / "ko" / page))
    }
    assert "keras_posenc.PositionalEncoding" in names
    for name in names:
        module, _, last = name.rpartition(".")
        assert hasattr(importlib.import_module(module), last), name
