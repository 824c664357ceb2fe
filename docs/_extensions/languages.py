"""What a page owes its language, and its pictures a text in it.

Korean pages say that they are Korean, no page leads on to one in the other
language, and a notebook's picture is named by the paragraph before its cell.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def _language(page: str) -> str:
    korean = page.startswith("docs/ko/") or page.endswith(".ko")
    return "ko" if korean else "en"


def _name_pictures(app: Sphinx, doctree: nodes.document) -> None:
    before = ""
    for node in doctree.findall():
        if isinstance(node, nodes.paragraph):
            before = node.astext()
        elif isinstance(node, nodes.image) and not node.get("alt"):
            node["alt"] = before


def _say_language(
    app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any
) -> None:
    context["language"] = _language(page)
    _parent, *neighbours = app.builder.relations.get(page, (None,) * 3)
    for name, other in zip(("prev", "next"), neighbours, strict=True):
        if other and _language(other) != _language(page):
            context[name] = None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _name_pictures)
    app.connect("html-page-context", _say_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
