"""Mathematics as MathML, which browsers show without a script or a font."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _inline(page: Any, node: nodes.math) -> None:
    page.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(page: Any, node: nodes.math_block) -> None:
    page.body.append('<div class="math">')
    page.body.append(convert(node.astext(), display="block"))
    page.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
