"""What the course and the notebooks show, runs; they assert their figures."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    page
    for folder in ("course", "notebooks")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name != "index.md"
]
STRING = re.compile(r'"[^"\n]*"')
CELL = re.compile(r"(?ms)^```\{code-cell\}[^\n]*\n(.*?)^```$")


def test_korean_pages_have_the_same_code():
    """Except for strings, such as labels, and cells that set up Jupyter."""

    def code(page):
        cells = CELL.findall(page.read_text(encoding="utf-8"))
        return [STRING.sub("", cell) for cell in cells if cell[0] != "%"]

    for page in (DOCS / "course").glob("[0-9]*.md"):
        assert code(page) == code(DOCS / "ko" / page.name), page.name


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_cells_run(page, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    text = page.read_text(encoding="utf-8")
    namespace = {"__name__": "__main__"}
    cells = list(CELL.finditer(text))
    assert len(cells) == text.count("```{code-cell}") > 0
    for cell in cells:
        lines = "\n" * text[: cell.start(1)].count("\n")  # as in the page
        exec(compile(lines + cell[1], str(page), "exec"), namespace)
        pyplot.close("all")
