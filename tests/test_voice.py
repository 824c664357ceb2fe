"""Pages keep to the words that CONTRIBUTING.md asks for."""

import re

from tests.test_readme import ROOT, pages, without_blocks

# Of others; or in Korean.
NOT_HELD = ("CODE_OF_CONDUCT.md", "README.ko.md")
NOT_HELD_FOLDERS = ("docs/ko", "tests")
PAGES = [
    page
    for page in sorted(pages())
    if (name := page.relative_to(ROOT).as_posix()) not in NOT_HELD
    and not name.startswith(NOT_HELD_FOLDERS)
]


def words():
    """The first column of the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = re.search(r"\| instead of \| write \|\n\|.*\n((?:\|.*\n)+)", text)
    for row in table[1].splitlines():
        yield from re.findall("`([^`]+)`", row.split("|")[1])


def prose(text):
    """A page without code, targets of links, and folds of exercises."""
    text = re.sub("<summary>.*?</summary>", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", without_blocks(text))
    return re.sub(r"(`+).+?\1", "", text, flags=re.DOTALL)


def faults(text):
    """Each use of a word of the table, and each number set otherwise."""
    listed = "|".join(re.escape(word) for word in words())
    pattern = rf"\b(?:{listed})\b|(?<![\d.])\d{{1,3}} \d{{3}}\b|\d %"
    paragraphs = re.sub(r"(?<!\n)\n(?!\n)", " ", prose(text))
    return re.findall(pattern, re.sub(" +", " ", paragraphs), re.IGNORECASE)


def test_pages_are_in_plain_words():
    found = {
        page.relative_to(ROOT).as_posix(): faults(page.read_text("utf-8"))
        for page in PAGES
    }
    assert {page: words for page, words in found.items() if words} == {}
