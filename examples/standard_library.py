"""The documentation in Python's standard library, as texts.

    python examples/standard_library.py [--count 5]

Docstrings of its modules, classes and functions, from their source: nothing is
imported but what the interpreter is built with, whose docstrings are nowhere
else. Each text comes once.
"""

import argparse
import ast
import importlib
import inspect
import random
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LEFT_OUT = {"__pycache__", "dist-packages", "lib2to3", "site-packages", "test"}
DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FEWEST_WORDS = 3


class Docstring(NamedTuple):
    """A docstring: of what, where that is, and what it says."""

    name: str  # "json.decoder.JSONDecoder.decode"
    module: str  # "json.decoder"
    text: str


def docstrings() -> list[Docstring]:
    """All there are, in the order of their modules."""
    found: dict[str, Docstring] = {}
    for name, module, text in (*_from_source(), *_built_in()):
        text = inspect.cleandoc(text)
        if len(text.split()) >= FEWEST_WORDS:
            found.setdefault(text, Docstring(name, module, text))
    return list(found.values())


def summary(text: str) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _from_source() -> Iterator[tuple[str, str, str]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if LEFT_OUT & {*parts}:
            continue
        module = ".".join(parts).removesuffix(".__init__")
        with warnings.catch_warnings(action="ignore"):  # of old escapes
            tree = ast.parse(path.read_bytes())
        for name, node in _named(tree, module):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield name, module, text


def _named(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A module, and all classes and functions within it."""
    yield name, node
    for each in ast.iter_child_nodes(node):
        if isinstance(each, DOCUMENTED):
            yield from _named(each, f"{name}.{each.name}")


def _built_in() -> Iterator[tuple[str, str, str]]:
    for module in sorted(sys.builtin_module_names):
        owner = importlib.import_module(module)
        members = {module: owner}
        for name, value in vars(owner).items():
            members[f"{module}.{name}"] = value
            if inspect.isclass(value):
                for inner, part in vars(value).items():
                    members[f"{module}.{name}.{inner}"] = part
        for name, value in members.items():
            # Of instances, such as numbers, that of their class is found.
            if inspect.ismodule(value) or callable(value):
                text = getattr(value, "__doc__", None)
                if isinstance(text, str):
                    yield name, module, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5, help="how many to show")
    options = parser.parse_args()
    found = docstrings()
    modules = {each.module for each in found}
    print(f"{len(found)} docstrings of {len(modules)} modules, among them:")
    for each in random.sample(found, options.count):
        print(f"{each.name}: {summary(each.text)}")


if __name__ == "__main__":
    main()
