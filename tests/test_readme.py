"""What the README and docs/ show, runs."""

import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import keras_posenc as kp

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SHOWN = [README, *sorted((ROOT / "docs").glob("*.md"))]


class Block(NamedTuple):
    """A fenced block: its language, the line it begins at, its lines."""

    language: str
    line: int
    code: str


def blocks(text):
    """The fenced blocks of a Markdown text, in their order."""
    found, fence, language, start, lines = [], None, "", 0, []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if fence is None:
            if opening := re.match(r"(`{3,}|~{3,})\s*([\w-]*)", stripped):
                fence, language = opening.groups()
                indent = line.index(fence)
                start, lines = number + 1, []
        elif stripped == fence:
            found.append(Block(language, start, "\n".join(lines) + "\n"))
            fence = None
        else:
            lines.append(line[indent:])
    assert fence is None, f"the block of line {start - 1} has no end"
    return found


def run(block, namespace, path="README.md"):
    """Runs a block; line numbers in its errors are those of the file."""
    code = "\n" * (block.line - 1) + block.code
    exec(compile(code, str(path), "exec"), namespace)


def arguments(lines, program):
    """The arguments of each line that calls a program."""
    return [
        shlex.split(line, comments=True)[1:]
        for line in lines
        if line.split()[:1] == [program]
    ]


def likeness(line):
    """A line of output but for its numbers, spaces and lines of tables."""
    line = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", line)
    return " ".join(re.sub("[━─┏┳┓┡╇┩└┴┘]", "", line).split())


class TestPages:
    @pytest.mark.slow
    @pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
    def test_snippets_and_commands_run(self, page, here, capsys):
        """Each page alone, in an empty folder."""
        namespace, printed = {"__name__": "__main__"}, ""
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                capsys.readouterr()
                run(block, namespace, page)
                printed = capsys.readouterr().out
            elif not block.language:
                calls = arguments(block.code.splitlines(), "keras-posenc")
                printed = self.printed(calls, capsys)
            elif block.language == "text":
                lines = iter(map(likeness, printed.splitlines()))
                for line in block.code.splitlines():
                    assert line == "..." or likeness(line) in lines, line

    @pytest.fixture
    def here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        monkeypatch.setattr(sys, "path", list(sys.path))

    def printed(self, calls, capsys):
        """What commands print on the files that the snippets left here."""
        if not calls:
            return ""
        from keras_posenc_cli import main

        capsys.readouterr()
        for call in calls:
            # The snippets have verified what is long.
            short = ["--max-length", "8"] * (call[0] in ("export", "verify"))
            assert main([*call, *short]) == 0, call
        return capsys.readouterr().out

    @pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
    def test_names_exist(self, page):
        text = page.read_text(encoding="utf-8")
        for name in set(re.findall(r"\bkp\.(\w+)", text)):
            assert hasattr(kp, name), name
