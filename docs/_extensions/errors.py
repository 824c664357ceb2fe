"""The directive `errors`: every message of the package, and its remedy."""

from docutils import nodes
from remedies import ENTRIES, page
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Errors(SphinxDirective):
    """Lists all errors."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(ENTRIES)
        text = "\n".join(page())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("errors", Errors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
