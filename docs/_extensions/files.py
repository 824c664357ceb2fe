"""HTML files of the repository open beside the pages that link to them."""

import shutil
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx


def _open_them(app: Sphinx, doctree: nodes.document) -> None:
    page = Path(app.env.doc2path(app.env.docname))
    for link in list(doctree.findall(addnodes.download_reference)):
        file = page.parent / link["reftarget"]
        if file.suffix == ".html":
            copy = app.outdir / file.resolve().relative_to(app.srcdir)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            link.replace_self(
                nodes.reference(
                    "", "", *link.children, refuri=link["reftarget"]
                )
            )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _open_them)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
