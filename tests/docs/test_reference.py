"""The reference of the site has every public name, once."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import keras_posenc as kp
from keras_posenc import analysis, distribution, positions, training, types

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def shown():
    """The names on the pages, and what each is said to be."""
    for page in sorted(REFERENCE.glob("*.md")):
        module = None
        for line in page.read_text("utf-8").splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"\.\. (auto\w+|py:data):: (\w+)", line):
                yield f"{module}.{found[2]}", found[1]


@pytest.mark.tensorflow
def test_every_public_name_is_there_once():
    public = {
        *(f"keras_posenc.{name}" for name in kp.__all__),
        *(
            f"{module.__name__}.{name}"
            for module in (analysis, distribution, positions, training, types)
            for name in module.__all__
        ),
    }
    names = [name for name, _ in shown()]
    assert len(names) == len({*names})
    assert {*names} == public


@pytest.mark.tensorflow
def test_each_is_what_its_page_says():
    for name, kind in shown():
        module, _, own = name.rpartition(".")
        value = getattr(importlib.import_module(module), own)
        if inspect.isclass(value):
            error = issubclass(value, Exception)
            assert kind == ("autoexception" if error else "autoclass"), name
        elif callable(value):
            assert kind == "autofunction", name


def test_every_page_is_in_the_index():
    index = (REFERENCE / "index.md").read_text("utf-8")
    pages = {page.stem for page in REFERENCE.glob("*.md")} - {"index"}
    assert pages <= {*re.findall(r"(?m)^(\w+)$", index)}


def test_every_formula_is_in_a_docstring(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    from formulas import LATEX

    docstrings = (
        ast.get_docstring(node) or ""
        for path in (ROOT / "keras_posenc").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    )
    code = {
        " ".join(span.split())
        for text in docstrings
        for span in re.findall("`([^`]+)`", text)
    }
    assert not LATEX.keys() - code
