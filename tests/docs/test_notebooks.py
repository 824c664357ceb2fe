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
CELL = re.compile(r"(?ms)^```\{code-cell\}[^\n]*\n(.*?)^```$")


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
