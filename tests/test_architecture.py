"""Imports between subpackages are those that CONTRIBUTING.md allows."""

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
    "ops": {"checks", "keras_internals"},
    "positional": {"checks", "ops"},
    "transformer": {"checks", "positional", "ops", "keras_internals"},
    "training": {"checks", "ops", "keras_internals"},
    "generation": {"checks", "transformer", "ops"},
    "distribution": {
        "checks",
        "publish",
        "transformer",
        "positional",
        "keras_internals",
    },
    "text": {"checks", "ops", "export", "progress", "keras_internals"},
    "checkpoints": {
        "checks",
        "generation",
        "transformer",
        "positional",
        "text",
        "ops",
        "progress",
        "publish",
        "keras_internals",
    },
    "analysis": {"checks", "ops", "positional", "progress"},
    "export": {"checks", "progress", "publish", "keras_internals"},
    "publish": {"export"},
    "scoring": {"checks", "export", "progress", "publish"},
    "positions": {"positional", "ops"},
    "types": {"export", "scoring"},
    "checks": set(),
    "progress": set(),
    "keras_internals": set(),
}
ROOMS = set(MAP)
MAP[COMMAND] = ROOMS | {"__init__"}
MAP["__init__"] = ROOMS
MAP[WORKER] = set()

# Subpackages of export/ that may import little of it: what judges an exported
# file not what writes it.
EXPORT = {
    "signatures": {"errors", "frozen", "model_protocol", "units"},
    "probes": {"errors", "model_protocol", "signatures", "units"},
}

# Where a package may be imported at all, and where only late: in a function.
HOMES = {
    "keras": MAP.keys() - {"checks", "progress", "publish"},
    "tensorflow": {
        "text",
        "training",
        "export",
        "scoring",
        "keras_internals",
        COMMAND,
        WORKER,
    },
    "tensorflow_text": {"text"},
    "safetensors": {"checkpoints"},
    "jax": {"distribution"},
    "orbax": {"distribution"},
    "matplotlib": {"analysis"},
    "pyarrow": {"scoring"},
    "shtab": {COMMAND},
    "jinja2": {WORKER},
    COMMAND: {COMMAND},
    "tests": set(),
    WORKER: {"export", "scoring", "progress", COMMAND, WORKER},
}
# What is private to Keras, and stands in one room alone.
KERAS_INTERNALS = {
    "_keras_mask",
    "_keras_history",
    "_inbound_nodes",
    "_flatten_layers",
    "_value",
    "_remat_mode",
    "_get_control_flow_context",
}
KEEPER = "keras_internals"
LATE = {
    # Whoever scores in a process of its own needs no Keras for that.
    "keras": {"scoring", COMMAND, WORKER},
    "numpy": {COMMAND, WORKER},
    "shtab": {COMMAND},
    "tensorflow": {
        "training",
        "scoring",
        "keras_internals",
        COMMAND,
        WORKER,
    },
    "tensorflow_text": set(MAP),
    "safetensors": set(MAP),
    "jax": set(MAP),
    "orbax": set(MAP),
    "matplotlib": set(MAP),
    "pyarrow": set(MAP),
}
# Of the command, what imports the package at its top: it is imported late.
COMMAND_LATE = f"{COMMAND}.exported_generator"


class Import(NamedTuple):
    """One imported module: `from a.b import c` names `a.b.c`."""

    name: str
    line: int
    late: bool
    relative: bool = False


def imports(node: ast.AST, late: bool = False) -> Iterator[Import]:
    """Yields every import below `node`, `importlib.import_module` included."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import():
                for alias in child.names:
                    yield Import(alias.name, child.lineno, late)
            case ast.ImportFrom():
                for alias in child.names:
                    name = f"{child.module or ''}.{alias.name}"
                    relative = child.level > 0
                    yield Import(name, child.lineno, late, relative)
            case ast.Call(
                func=ast.Attribute(attr="import_module")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(name, child.lineno, late)
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports(child, late=True)
            case ast.If(
                test=ast.Name(id="TYPE_CHECKING")
                | ast.Attribute(attr="TYPE_CHECKING")
            ):
                # Never run, so never early.
                for statement in child.body:
                    block = ast.Module([statement], [])
                    yield from imports(block, late=True)
                for statement in child.orelse:
                    block = ast.Module([statement], [])
                    yield from imports(block, late)
            case _:
                yield from imports(child, late)


def room_of(name: str) -> str:
    """The room that holds module `keras_posenc.room...`; else __init__."""
    first = name.split(".")[1] if "." in name else ""
    return first if first in MAP else "__init__"


def violations(path: str, source: str) -> list[str]:
    """What the file at `path`, relative to the root, imports against the map.

    Files outside the package are only kept from `keras.src`.
    """
    tree = ast.parse(source)
    found = []

    def forbid(line: int, what: str) -> None:
        found.append(f"{path}:{line}: {what}")

    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="keras"), attr="src"):
                forbid(node.lineno, "keras.src is private to Keras")

    parts = Path(path).with_suffix("").parts
    room = parts[1] if parts[0] == PACKAGE else None
    if parts[0] in (COMMAND, WORKER):
        room = parts[0]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)) if (
                name in KERAS_INTERNALS and room not in {None, KEEPER}
            ):
                forbid(node.lineno, f"{name} belongs into keras_internals")
    if room is not None and room not in MAP:
        forbid(1, f"{room} is not on the map")

    for item in imports(tree):
        top = item.name.split(".")[0]
        if item.name == "keras.src" or item.name.startswith("keras.src."):
            forbid(item.line, "keras.src is private to Keras")
        if room is None or room not in MAP:
            continue
        late = item.late or ".".join(parts) == COMMAND_LATE
        if item.relative:
            forbid(item.line, f"import from {PACKAGE}... by its whole name")
        elif top == PACKAGE:
            target = room_of(item.name)
            if target != room and target not in MAP[room]:
                forbid(item.line, f"{room} must not import {target}")
            elif room == target == "export":
                own, other = parts[2], item.name.split(".")[2]
                if own != other and other not in EXPORT.get(own, {other}):
                    forbid(item.line, f"{own} must not import {other}")
            elif room == COMMAND and not late:
                forbid(item.line, f"import {target} inside a function")
        elif room not in HOMES.get(top, MAP):
            forbid(item.line, f"{room} must not import {top}")
        elif item.name.startswith(COMMAND_LATE) and not item.late:
            forbid(item.line, f"import {COMMAND_LATE} inside a function")
        elif room in LATE.get(top, ()) and not late:
            forbid(item.line, f"import {top} inside a function")
    return found


FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (PACKAGE, COMMAND, WORKER, "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*.py*")
    if path.suffix in (".py", ".pyi")
)


def test_files_keep_to_the_map():
    found = []
    for path in FILES:
        found += violations(path, (ROOT / path).read_text(encoding="utf-8"))
    assert found == []


def test_no_files_import_each_other_in_a_circle():
    modules = {
        ".".join(Path(path).with_suffix("").parts): path for path in FILES
    }
    arrows = {
        name: {
            found
            for item in imports(ast.parse((ROOT / path).read_text()))
            for found in (item.name, item.name.rpartition(".")[0])
            if found in modules and found != name
        }
        for name, path in modules.items()
    }
    while free := {name for name, found in arrows.items() if not found}:
        arrows = {
            name: found - free
            for name, found in arrows.items()
            if name not in free
        }
    assert arrows == {}


def test_oracle_of_the_tests_shares_no_code_with_what_it_judges():
    source = (ROOT / "tests" / "reference.py").read_text()
    found = {each.name.split(".")[0] for each in imports(ast.parse(source))}
    assert found - sys.stdlib_module_names == {"numpy"}


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


def test_programs_turn_onednn_on_and_the_package_leaves_it():
    """TensorFlow leaves it off on processors without AVX-512."""

    def saying(name, *folders):
        return {
            path.relative_to(ROOT).as_posix()
            for folder in folders
            for path in (ROOT / folder).rglob("*.py")
            if name in path.read_text()
        }

    programs = "benchmarks", "examples", "export", COMMAND
    computing = saying('setdefault("TF_CPP_MIN_LOG_LEVEL"', *programs)
    computing.remove("examples/serving_client.py")  # the server computes
    assert saying("TF_ENABLE_ONEDNN_OPTS", *programs) >= computing
    assert f"{COMMAND}/parsing.py" in computing
    assert not saying("TF_ENABLE_ONEDNN_OPTS", PACKAGE)
