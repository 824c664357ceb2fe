"""Imports between subpackages are those that `MAP` allows."""

import ast
import importlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "keras_posenc"

COMMAND = "keras_posenc_cli"
WORKER = "keras_posenc_worker"

# What each subpackage may import besides itself. The names are folders, except
# __init__.py, positions.py and types.py (the public names), checks.py (of
# arguments), progress.py (what others show), publish.py (what others write),
# distribution.py (models on several devices) and keras_internals.py (what is
# private to Keras). The command is a package of its own, to parse before it
# imports this one, and so is the worker, to run without it.
MAP = {
    name: set(others.split())
    for name, others in {
        "ops": "checks keras_internals",
        "positional": "checks ops",
        "transformer": "checks positional ops keras_internals",
        "training": "checks checkpoints transformer text ops "
        "progress publish keras_internals",
        "generation": "checks transformer ops keras_internals",
        "distribution": "checks transformer positional publish keras_internals",
        "text": "checks ops export progress keras_internals",
        "checkpoints": "checks generation transformer positional text ops "
        "export progress publish keras_internals",
        "analysis": "checks positional ops progress",
        "export": "checks progress publish keras_internals",
        "publish": "export",
        "scoring": "checks export progress publish",
        "positions": "positional ops",
        "types": "export scoring",
        "checks": "",
        "progress": "",
        "keras_internals": "",
    }.items()
}
ROOMS = set(MAP)
MAP[COMMAND] = ROOMS | {"__init__"}
MAP["__init__"] = ROOMS
MAP[WORKER] = set()

# Where a package may be imported at all.
HOMES = {
    "keras": MAP.keys() - {"checks", "progress", "publish"},
    "tensorflow": {
        *("text", "training", "export", "scoring", "keras_internals"),
        *(COMMAND, WORKER),
    },
    "tensorflow_text": {"text"},
    "safetensors": {"checkpoints"},
    "jax": {"distribution"},
    "orbax": {"distribution"},
    "matplotlib": {"analysis"},
    "pyarrow": {"scoring"},
    "jinja2": {WORKER},
    COMMAND: {COMMAND},
    "tests": set(),
    WORKER: {"export", "scoring", "progress", COMMAND, WORKER},
}


def imports(node):
    """Yields name and line of every import: `from a.b import c` is `a.b.c`."""
    for child in ast.walk(node):
        match child:
            case ast.Import():
                for alias in child.names:
                    yield alias.name, child.lineno
            case ast.ImportFrom():
                for alias in child.names:
                    yield f"{child.module}.{alias.name}", child.lineno
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name, child.lineno


def room_of(name):
    """The room that holds module `keras_posenc.room...`; else __init__."""
    first = name.split(".")[1] if "." in name else ""
    return first if first in MAP else "__init__"


def violations(path):
    """What the file at `path`, relative to the root, imports against the map.

    Files outside the package are only kept from `keras.src`.
    """
    first, second, *_ = *Path(path).with_suffix("").parts, ""
    room = second if first == PACKAGE else first
    for name, line in imports(ast.parse((ROOT / path).read_text("utf-8"))):
        at = f"{path}:{line}"
        top = name.split(".")[0]
        if f"{name}.".startswith("keras.src."):
            yield f"{at}: keras.src is private to Keras"
        if room not in MAP:
            if first == PACKAGE:
                yield f"{at}: {room} is not on the map"
        elif top == PACKAGE:
            target = room_of(name)
            if target != room and target not in MAP[room]:
                yield f"{at}: {room} must not import {target}"
        elif room not in HOMES.get(top, MAP):
            yield f"{at}: {room} must not import {top}"


FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (PACKAGE, COMMAND, WORKER, "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py*")
    if path.suffix in (".py", ".pyi")
)


def test_files_keep_to_the_map():
    assert [found for path in FILES for found in violations(path)] == []


def test_public_names_are_listed():
    import keras_posenc as kp

    public = {name for name in dir(kp) if not name.startswith("_")}
    assert public == set(kp.__all__)
    # As type checkers read the stub, of which the package reads the lines.
    stub = ast.parse((ROOT / PACKAGE / "__init__.pyi").read_text())
    modules = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert modules == kp._MODULES
    assert public == {n for n, m in modules.items() if m != PACKAGE}
    for name, module in modules.items():
        own = importlib.import_module(module)
        assert getattr(kp, name) is getattr(own, name)
    assert len(public) <= 60
    # Modules whose names stay in them.
    assert kp.analysis.SCHEMES
    assert kp.training.NoamSchedule
    assert kp.positions.KerpleBias
    assert kp.types.ExportedModel
