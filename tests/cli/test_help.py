"""Help that fits a screen, and command lines that parse as they are quoted."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from keras_posenc_cli.parsing import make_parser

ROOT = Path(__file__).resolve().parents[2]


def parsers(parser):
    """Yields the parser, and those of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


PARSERS = {parser.prog: parser for parser in parsers(make_parser())}


def parse(line):
    """What a quoted command line asks for."""
    program, *arguments = shlex.split(line, comments=True)
    assert program == "keras-posenc"
    return make_parser().parse_args(arguments)


@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_a_screen_and_shows_an_example(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = PARSERS[name].format_help()
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: {name} ")
    (example,) = re.findall(r"(?m)^example:\n  (.+)$", text)
    options = parse(example)
    assert callable(options.run)
    assert options.parser.prog.startswith(name)


QUOTING = [
    path
    for folder in (ROOT, ROOT / "docs", *(ROOT / "export").iterdir())
    for path in folder.glob("*.md")
    if "\nkeras-posenc " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", QUOTING, ids=lambda path: path.parent.name)
def test_quoted_commands_parse(path):
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"(?m)^keras-posenc .*", text):
        assert callable(parse(line).run)
