"""The directive `errors`: messages of some files, with causes and remedies."""

import itertools
import re
from collections.abc import Iterator

from docutils import nodes
from raised import ENTRIES, entries, every
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Errors(SphinxDirective):
    """Lists the errors of files whose paths match a regular expression."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(ENTRIES)
        return self.parse_text_to_nodes("\n".join(_page(self.arguments[0])))


def _page(place: str) -> Iterator[str]:
    """The lines of a page, as Markdown: the messages by their entry."""
    known = entries()
    there = {
        (min(n for n, each in enumerate(known) if each.matches(error)), *error)
        for error in every()
        if re.match(place, error.place)
    }
    for index, errors in itertools.groupby(sorted(there), lambda each: each[0]):
        yield f"\n**{known[index].cause}** {known[index].remedy}\n"
        lines = {
            f"- `{kind}`: `` {' '.join(message.split())} ``"
            for _, _, kind, message in errors
        }
        yield from sorted(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("errors", Errors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
