"""What the guides quote is what is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def strings():
    """Every string of the exports, the parts of f-strings joined."""
    for package in ("keras_posenc/export", "keras_posenc_worker"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant | ast.JoinedStr):
                    parts = getattr(node, "values", [node])
                    yield "".join(
                        part.value
                        if isinstance(part, ast.Constant)
                        and isinstance(part.value, str)
                        else "#"
                        for part in parts
                    )


def test_lines_of_the_report_are_printed():
    """`docs/report.md` explains lines that the exports can print."""
    page = (DOCS / "report.md").read_text("utf-8")
    (table,) = re.findall(r"\| line \| .*\n\|.*\n((?:\|.*\n)+)", page)
    lines = [
        line
        for row in table.splitlines()
        for line in re.findall("`([^`]+)`", row.split("|")[1])
    ]
    assert len(lines) > 15
    printed = "\n".join(strings())
    for line in lines:
        # Names, numbers and kinds of outputs are the page's examples.
        names = (
            r"Model 'm'|serving_default|\b\w*ids\b|\d+(?: samples)?|text \."
            r"|the samples:|these inputs|neither"
            r"|scores:|logits:|vectors:"
        )
        parts = re.split(names, line)
        longest = max(parts, key=len).removesuffix("...").strip(" :,")
        assert longest in printed, line
