"""Notes of a release are its section of the changelog."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
notes = runpy.run_path(str(ROOT / "release" / "notes.py"))["notes"]
CHANGELOG = """# Changelog

## [Unreleased] 0.3.0

- Nothing.

## [0.2.1] - 2026-11-30

### Added

- A page ([docs](docs/a.md#b), [theirs](https://example.org/a)).

## [0.2.10] - 2026-01-02

- Ten.

## [0.2.0] - 2026-01-01

- The first.

[0.2.0]: https://example.org/0.2.0
"""


def test_section_of_a_version():
    assert notes(CHANGELOG, "0.2.1", "https://x.y/blob/v0.2.1") == (
        "### Added\n\n- A page ([docs](https://x.y/blob/v0.2.1/docs/a.md#b), "
        "[theirs](https://example.org/a)).\n"
    )
    assert notes(CHANGELOG, "0.2.10", "") == "- Ten.\n"
    assert notes(CHANGELOG, "0.2.0", "") == "- The first.\n"


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "0.2.2", "0.2.."])
def test_what_is_not_released_has_none(version):
    with pytest.raises(ValueError, match="has no section"):
        notes(CHANGELOG, version, "")


def test_changelog_has_sections_that_are_found():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    title, *others = re.findall(r"(?m)^## (.*)", text)
    if match := re.fullmatch(r"\[Unreleased\] (\S+)", title):
        text = text.replace(title, f"[{match[1]}] - 2026-01-01")
        assert len(notes(text, match[1], "")) > 1000
    for other in others:
        assert notes(text, re.match(r"\[(.+?)\]", other)[1], "")
