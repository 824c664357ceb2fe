"""What the README and docs/ show, runs; what any page names, exists."""

import ast
import collections
import importlib
import itertools
import os
import re
import shlex
import sys
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
SHOWN = [README, *sorted((ROOT / "docs").glob("*.md"))]
# Hidden ones aside, what npm, make and builds leave here.
NOT_OURS = {"node_modules", "build", "demo", "dist", "htmlcov"}


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


def without_blocks(text):
    return re.sub(r"(?ms)^\s*(`{3,}|~{3,}).*?^\s*\1\s*$", "", text)


def arguments(lines, program):
    """The arguments of each line that calls a program."""
    return [
        shlex.split(line, comments=True)[1:]
        for line in lines
        if line.split()[:1] == [program]
    ]


def commands(text, program):
    """The arguments of each `program ...` in blocks and in code spans."""
    fenced = [block for block in blocks(text) if not block.language]
    # A command may go on in the next line, behind a backslash.
    whole = [block.code.replace("\\\n", " ") for block in fenced]
    lines = [line for code in whole for line in code.splitlines()]
    # A span may be broken over lines.
    spans = re.findall(r"`([^`]+)`", without_blocks(text))
    return arguments([*lines, *(" ".join(s.split()) for s in spans)], program)


def likeness(line):
    """A line of output but for its numbers, spaces and lines of tables."""
    line = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", line)
    return " ".join(re.sub("[━─┏┳┓┡╇┩└┴┘]", "", line).split())


def pages():
    """Every Markdown file of the repository."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = {
            name for name in folders if not name.startswith(".")
        } - NOT_OURS
        for name in names:
            if name.endswith(".md"):
                yield Path(folder, name)


def anchors(text):
    """What links into a page may call its headings, by GitHub's rule."""
    seen = collections.Counter()
    for title in re.findall(r"(?m)^#{1,6} +(.+?) *#*$", without_blocks(text)):
        title = re.sub(r"\]\([^)]*\)", "", title).lower()
        name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1


def links(text):
    """Where the links and images of a page lead."""
    prose = re.sub(r"(`+).+?\1", "", without_blocks(text), flags=re.DOTALL)
    inline = re.findall(r"\]\(\s*<?([^)>\s]+)", prose)
    return inline + re.findall(r"(?m)^ {0,3}\[[^\]]+\]: *<?([^>\s]+)", prose)


def is_broken(page, link):
    """Whether a link of a page leads nowhere in the repository."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):  # https:, mailto:
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return True
    return bool(anchor) and (
        target.suffix != ".md"
        or anchor not in anchors(target.read_text(encoding="utf-8"))
    )


class TestPages:
    TEXTS: ClassVar = {
        page: page.read_text(encoding="utf-8") for page in sorted(pages())
    }

    @pytest.mark.slow
    @pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
    def test_snippets_and_commands_run(self, page, here, capsys):
        """Each page alone, in an empty folder."""
        namespace, printed = {"__name__": "__main__"}, ""
        for block in blocks(self.TEXTS[page]):
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

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("line", "least", "most"),
        [("", 0.8, 1.0), ("    kp.PositionalEncoding(),\n", 0.45, 0.55)],
        ids=["with", "without"],
    )
    def test_readme_model_needs_positions(
        self, line, least, most, here, capsys
    ):
        (block,) = (
            block
            for block in python_blocks(self.TEXTS[README])
            if "kp.PositionalEncoding()," in block.code
        )
        code = block.code.replace(line, "") if line else block.code
        assert (code == block.code) == (not line)
        imports = "import keras\nimport keras_posenc as kp\n"
        run(block._replace(code=imports + code), {"__name__": "__main__"})
        assert least <= float(capsys.readouterr().out) <= most

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

    def commands(self, program):
        """Those of all pages."""
        each = (commands(text, program) for text in self.TEXTS.values())
        return list(itertools.chain.from_iterable(each))

    def test_make_targets_exist(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"(?m)^([a-z-]+):", makefile))
        assert "lint" in targets  # the list is read rightly
        shown = self.commands("make")
        assert ["demo"] in shown
        for words in shown:
            named = {word for word in words if "=" not in word}
            assert named <= targets, words

    def test_pytest_commands_select_something(self):
        shown = self.commands("pytest")
        assert shown, "no page names a test"
        for words in shown:
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
        for page, text in self.TEXTS.items():
            for name in set(re.findall(r"\bkp\.(\w+)", text)):
                assert hasattr(package, name), (page, name)

    def test_every_link_leads_somewhere_and_the_readme_is_short(self):
        broken = [
            f"{page.relative_to(ROOT)}: {link}"
            for page, text in self.TEXTS.items()
            for link in links(text)
            if is_broken(page, link)
        ]
        assert not broken
        assert len(self.TEXTS[README].splitlines()) <= 110


def names_of_tests(path):
    """Names of the tests of a file, or of all files of a folder."""
    assert path.exists(), path
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield f"{file.relative_to(ROOT)}::{node.name}"
