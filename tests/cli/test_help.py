"""Help that fits a screen, and command lines that parse as they are quoted."""

import re
import shlex
from pathlib import Path

import pytest

from keras_posenc_cli.parsing import make_parser
from tests.cli.words import OPTION, PARSERS

ROOT = Path(__file__).resolve().parents[2]


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


def test_messages_of_the_package_name_no_options():
    """They speak Python: the command puts its options in their place."""
    options = {
        option
        for parser in PARSERS.values()
        for option in parser._option_string_actions
        if option.startswith("--") and option != "--out"  # of whole commands
    }
    for path in (ROOT / "keras_posenc").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not options.intersection(re.findall(OPTION, text)), path
