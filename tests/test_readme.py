"""What the README shows, runs; and what it names, exists."""

import ast
import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


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


def python_blocks(text):
    found = [block for block in blocks(text) if block.language == "python"]
    assert found, "there is no python block"
    return found


def run(block, namespace, path="README.md"):
    """Runs a block; line numbers in its errors are those of the file."""
    code = "\n" * (block.line - 1) + block.code
    exec(compile(code, str(path), "exec"), namespace)


def commands(text, program):
    """The arguments of each `program ...` in blocks and in code spans."""
    fenced = [block for block in blocks(text) if block.language != "python"]
    lines = [line for block in fenced for line in block.code.splitlines()]
    prose = re.sub(r"(?ms)^\s*(`{3,}|~{3,}).*?^\s*\1\s*$", "", text)
    # A span may be broken over lines.
    lines += [" ".join(s.split()) for s in re.findall(r"`([^`]+)`", prose)]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words and words[0] == program]


class TestReading:
    TEXT = (
        "`make demo` and `make\n  test`, but never `made`\n"
        "```python\nx = 1\n```\n"
        "```\nmake lint   # a comment\nprogram --out 'a b'\n```\n"
        "  ~~~python\n  y = x + 1\n  if y:\n      z = y\n  ~~~\n"
        "```pycon\n>>> x\n```\n"
    )

    def test_blocks_run_in_one_namespace(self):
        first, second = python_blocks(self.TEXT)
        assert (first.line, first.code) == (4, "x = 1\n")
        assert second.code == "y = x + 1\nif y:\n    z = y\n"
        namespace = {}
        for block in (first, second):
            run(block, namespace)
        assert namespace["z"] == 2

    def test_an_error_names_its_line(self):
        (block,) = python_blocks("text\n\n```python\nx = 1\nx / 0\n```\n")
        with pytest.raises(ZeroDivisionError) as error:
            run(block, {})
        assert error.traceback[-1].lineno + 1 == 5

    @pytest.mark.parametrize("text", ["", "# title\n", "```\nx = 1\n```\n"])
    def test_a_readme_without_python_is_refused(self, text):
        with pytest.raises(AssertionError, match="no python block"):
            python_blocks(text)

    def test_a_block_without_end_is_refused(self):
        with pytest.raises(AssertionError, match="line 2 has no end"):
            blocks("a\n```python\nx = 1\n")

    def test_commands(self):
        assert commands(self.TEXT, "make") == [["lint"], ["demo"], ["test"]]
        assert commands(self.TEXT, "program") == [["--out", "a b"]]


class TestReadme:
    TEXT = README.read_text(encoding="utf-8")

    @pytest.mark.slow
    def test_snippets_and_commands_run(self, tmp_path, monkeypatch):
        from keras_posenc_cli import main

        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        monkeypatch.setattr(sys, "path", list(sys.path))
        namespace = {"__name__": "__main__"}
        for block in python_blocks(self.TEXT):
            run(block, namespace, README)
        # On the files that the snippets left here.
        shown = commands(self.TEXT, "keras-posenc")
        assert shown, "the README shows no use of the command"
        for arguments in shown:
            # The snippets have verified what is long.
            verifies = arguments[0] in ("export", "verify")
            short = ["--max-length", "8"] * verifies
            assert main([*arguments, *short]) == 0, arguments

    def test_make_targets_exist(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"(?m)^([a-z-]+):", makefile))
        assert "lint" in targets  # the list is read rightly
        shown = commands(self.TEXT, "make")
        assert shown, "the README names no target"
        for words in shown:
            named = {word for word in words if "=" not in word}
            assert named <= targets, words

    def test_pytest_commands_select_something(self):
        for words in commands(self.TEXT, "pytest"):
            assert re.fullmatch(r"[^-]+( -k \w+)?", " ".join(words)), words
            *paths, keyword = words if "-k" in words else (*words, "")
            names = [
                name
                for path in paths
                if path != "-k"
                for name in names_of_tests(ROOT / path)
            ]
            assert any(keyword.lower() in name.lower() for name in names), words

    def test_names_exist(self):
        package = importlib.import_module("keras_posenc")
        for name in set(re.findall(r"\bkp\.(\w+)", self.TEXT)):
            assert hasattr(package, name), name

    def test_links_lead_somewhere(self):
        for target in re.findall(r"\]\(([^)#\s]+)", self.TEXT):
            if "://" not in target:
                assert (ROOT / target).exists(), target


def names_of_tests(path):
    """Names of the tests of a file, or of all files of a folder."""
    assert path.exists(), path
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{file.relative_to(ROOT)}::{node.name}"
