"""Each notebook also as an .ipynb file, for Jupyter and Colab.

Its page links to the file, and to Colab if the repository is known.
"""

from __future__ import annotations  # the tests have no Sphinx

import json
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CELL = re.compile(r"(?ms)^```\{code-cell\}[^\n]*\n(.*?)^```$\n?")
INSTALL = "%pip install --quiet 'keras-posenc[plot]'"
COLAB = "https://colab.research.google.com/github/"
RUN = {"execution_count": None, "outputs": []}
LABELS = {
    "en": ("Download this notebook", "open it in Colab"),
    "ko": ("이 노트북 내려받기", "Colab에서 열기"),
}


def is_notebook(text: str) -> bool:
    """Whether a page is a notebook, by its first lines."""
    return text.startswith("---\nfile_format: mystnb")


def notebook(text: str, folder: str, address: str) -> dict[str, Any]:
    """Returns a page as a notebook of format 4.5, without outputs.

    Args:
        text: The page, in MyST.
        folder: Where it is in the repository, to resolve its links.
        address: Where the repository's files are; without it, links are their
            texts alone.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        if re.match("[a-z]+:|#", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        return f"[{words}]({address}/{path})" if address else words

    def prose(part: str) -> str:
        part = re.sub(r"(?ms)^```\{.*?^```$\n?", "", part)  # directives
        # What is folded may hold a code cell, which Markdown cannot fold.
        part = re.sub(r"<details><summary>(.*?)</summary>", r"**\1**", part)
        part = part.replace("</details>", "")
        part = re.sub(r"\{[\w:]+\}`~?(?:[\w.]*\.)?([^`]+)`", r"`\1`", part)
        return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, part)

    body = re.sub(r"(?s)\A---\n.*?\n---\n", "", text)
    cells = [("code", INSTALL)]
    for number, part in enumerate(CELL.split(body)):
        is_code = number % 2 == 1
        if source := (part if is_code else prose(part)).strip("\n"):
            cells.append(("code" if is_code else "markdown", source))
    return {
        "cells": [
            {
                "cell_type": kind,
                "id": f"cell-{number}",
                "metadata": {},
                "source": source.splitlines(keepends=True),
                **(RUN if kind == "code" else {}),
            }
            for number, (kind, source) in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {
                "display_name": "Python 3",
                "language": "python",
                "name": "python3",
            }
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _branch(app: Sphinx) -> str:
    published = app.config.published
    return "main" if published == "latest" else published


def _write(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    repository = app.config.repository
    address = f"{repository}/blob/{_branch(app)}" if repository else ""
    for name in app.env.found_docs:
        path = Path(app.env.doc2path(name))
        text = path.read_text(encoding="utf-8")
        if is_notebook(text):
            made = notebook(text, posixpath.dirname(name), address)
            target = Path(app.outdir, f"{name}.ipynb")
            target.write_text(json.dumps(made, ensure_ascii=False, indent=1))


def _link(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    if doctree is None or not is_notebook(
        Path(app.env.doc2path(page)).read_text(encoding="utf-8")
    ):
        return
    download, colab = LABELS["ko" if page.startswith("docs/ko/") else "en"]
    file = posixpath.basename(page) + ".ipynb"
    links = f'<a href="{file}" download>{download}</a>'
    found = re.fullmatch(r"https://github\.com/(.+)", app.config.repository)
    if found and app.config.published:
        # The published sites are folders of the branch gh-pages.
        place = f"{found[1]}/blob/gh-pages/{app.config.published}"
        links += f' · <a href="{COLAB}{place}/{page}.ipynb">{colab}</a>'
    context["body"] = context["body"].replace(
        "</h1>", f"</h1>\n<p>{links}</p>", 1
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("repository", "", "html")
    app.add_config_value("published", "", "html")
    app.connect("html-page-context", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
