"""What the package raises, off its source, and `docs/errors.toml` on it."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ROOT / "docs" / "errors.toml"
PACKAGES = ("keras_posenc", "keras_posenc_cli", "keras_posenc_worker")


class Raised(NamedTuple):
    """An error. In its message `{name}` is filled in, `[a | b]` one of two."""

    place: str  # the file, from the root of the repository
    kind: str
    message: str


class Entry(NamedTuple):
    """What errors mean whose message and place match."""

    message: str
    cause: str
    remedy: str
    place: str = ""

    def matches(self, error: Raised) -> bool:
        found = re.search(self.message, error.message)
        return bool(found and re.match(self.place, error.place))


def entries() -> list[Entry]:
    with ENTRIES.open("rb") as file:
        return [Entry(**each) for each in tomllib.load(file)["error"]]


@functools.cache
def every() -> list[Raised]:
    """All errors, file by file, each once."""
    found: dict[Raised, None] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            found |= dict.fromkeys(in_source(place, path.read_text("utf-8")))
    return list(found)


def in_source(place: str, source: str) -> Iterator[Raised]:
    """The errors of a file: raised, or made by a function for others."""
    tree = ast.parse(source)
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Return):
            made = node.exc if isinstance(node, ast.Raise) else node.value
            match made:
                case ast.Call(func=ast.Name(id=kind), args=[*_, message]) if (
                    kind[:1].isupper() or kind == "kind"
                ) and (isinstance(node, ast.Raise) or kind.endswith("Error")):
                    pass
                case ast.Call(
                    func=ast.Attribute(attr="ArgumentTypeError" as kind),
                    args=[message],
                ):
                    pass
                # `self.wrong(key, why)`: the caller says why.
                case ast.Call(
                    func=ast.Attribute(attr="wrong"), args=[_, message]
                ):
                    kind = "ValueError"
                case _:
                    continue
            if kind == "ExportVerificationError":  # a report may follow
                message = made.args[0]
            for text in _texts([message], functions):
                if re.search("[A-Za-z]{2}", re.sub(r"\{.*?\}", "", text)):
                    yield Raised(place, kind, text)


def _texts(
    nodes: list[ast.expr], functions: dict[str, ast.FunctionDef]
) -> Iterator[str]:
    for node in nodes:
        match node:
            # A function of the file that puts the message into words.
            case ast.Call(func=ast.Name(id=name)) if name in functions:
                for each in ast.walk(functions[name]):
                    if isinstance(each, ast.Return) and each.value is not None:
                        yield from _texts([each.value], {})
            case _:
                yield template(node)


def template(node: ast.expr) -> str:
    """The text that an expression gives, with `{name}` for what varies."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(template, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.BinOp(left=left, op=ast.Mult()):
            return f"[{template(left)}]"
        case ast.IfExp(body=body, orelse=orelse):
            parts = [part for part in map(template, (body, orelse)) if part]
            return f"[{' | '.join(parts)}]"
        case ast.FormattedValue(value=value):
            return (
                template(value)
                if isinstance(value, ast.IfExp)
                else _name(value)
            )
    return _name(node)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_').lower()}}}"
        case ast.Call(func=ast.Name(id="type" | "repr" | "str"), args=[one]):
            return _name(one)
    return "{…}"
