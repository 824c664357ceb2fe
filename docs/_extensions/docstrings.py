"""Docstrings, whose prose is Markdown, as the reStructuredText of autodoc.

Formulas, which are code there, are set as formulas here.
"""

import inspect
import re
from typing import Any

from formulas import LATEX
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

# Either may go on in the next line.
LINK = re.compile(r"\[([^\]`]+)\]\(\s*(https?://[^)\s]+)\s*\)")
CODE = re.compile(r"(?<!`)`([^`]+)`(?=(.?))", re.DOTALL)
# Napoleon knows a section by nothing standing behind its name, and by what is
# indented below it.
MORE = re.compile(r"(?m)^( *)(Call arguments): (those[^:]+):\n(?=\1 )")
NAME = re.compile(r"([A-Z]\w*|\w+_\w+|keras_posenc)(\.\w+)*")


def _code(found: re.Match[str]) -> str:
    text = " ".join(found[1].split())
    if text in LATEX:
        marked = f":math:`{LATEX[text]}`"
    elif NAME.fullmatch(text):  # a link, where something has this name
        marked = f":py:obj:`{text}`"
    else:
        marked = f"``{text}``"
    return marked + "\\ " * found[2].isalnum()  # a letter may follow


def to_rest(text: str) -> str:
    """What is a link or code in Markdown; examples stay as they are."""
    text = MORE.sub(r"\1\2 are \3:\n\n\1\2:\n", text)
    prose = re.split(r"(?m)^(\s*(?:>>>|\.\.\.).*\n?)", text)
    for index in range(0, len(prose), 2):
        prose[index] = LINK.sub(r"`\1 <\2>`__", CODE.sub(_code, prose[index]))
    return "".join(prose)


def _process(
    app: Sphinx,
    what: str,
    name: str,
    value: object,
    options: object,
    lines: list[str],
) -> None:
    lines[:] = to_rest("\n".join(lines)).split("\n")


def _sign(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """What a layer takes, which Keras hides behind a `__new__` of its own."""
    if what == "class" and (signature or "").startswith("(*args"):
        own = inspect.signature(value.__init__)
        _, *parameters = own.parameters.values()  # but for `self`
        own = own.replace(parameters=parameters, return_annotation=own.empty)
        return stringify_signature(own, unqualified_typehints=True), returns
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-signature", _sign)
    # Before napoleon, which reads the sections.
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
