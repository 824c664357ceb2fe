"""The computation of an exported file, as tokens by which two can be compared.

`litert_graph.py` and `onnx_graph.py` read a file of their format as nodes. Here
they are visited from the outputs to the inputs, and the third one of a kind is
called "MUL 3", say. So names and the stored order of operators do not matter.
But one operator that is used twice differs from two operators, which may draw
random numbers.
"""

import collections
import dataclasses
from typing import Any, NamedTuple


@dataclasses.dataclass(eq=False)
class Node:
    """An operator, an input, a graph, or the whole file.

    Attributes:
        kind: What it does, or is.
        facts: What must be equal, by words for it: types, shapes, counts.
        settings: Values compared as numbers are: attributes, scales.
        parts: What it reads, calls or consists of, by its place.
    """

    kind: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    parts: dict[str, "Part"] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class Constant:
    """Numbers or texts of a file, stored once or several times.

    Attributes:
        array: The values as they are stored.
        name: Their name in the file.
        facts: What must be equal, as in a node.
        scale: Of integers that are rounded real numbers, one scale or one for
            each channel.
        zero: The integers that mean 0, as many as scales.
        axis: The axis of the channels.
        is_measured: Whether scales were calibrated on inputs that are not
            known.
    """

    array: Any
    name: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    scale: list[float] = dataclasses.field(default_factory=list)
    zero: list[int] = dataclasses.field(default_factory=list)
    axis: int = 0
    is_measured: bool = False


class Tensor(NamedTuple):
    """One of the outputs of a node, or a constant."""

    source: Node | Constant
    place: int = 0


Part = Node | Constant | Tensor | None


class Fingerprint(NamedTuple):
    """The computation of a file.

    Attributes:
        tokens: Its structure: pairs of a property and its value.
        numbers: The constants and settings of this structure, by their places,
            in an order that follows from it.
    """

    tokens: list[tuple[str, Any]]
    numbers: list[tuple[str, Any]]


def fingerprint(file: Node) -> Fingerprint:
    """Returns what a file computes, without the names in it."""
    tokens: list[tuple[str, Any]] = []
    numbers: list[tuple[str, Any]] = []
    names: dict[Node, str] = {}
    counts: collections.Counter[str] = collections.Counter()
    remaining: list[tuple[str, Part]] = [("", file)]  # deep, so no recursion
    while remaining:
        place, part = remaining.pop()
        source, output = part if isinstance(part, Tensor) else (part, 0)
        if isinstance(source, Node):
            is_new = source not in names
            if is_new:
                counts[source.kind] += 1
                number = f" {counts[source.kind]}"
                names[source] = source.kind + number * (number != " 1")
            name = names[source]
            value = f"output {output} of {name}" if output else name
            tokens.append((place, value))
            if not is_new:
                continue
            properties = {
                "kind": source.kind,
                **source.facts,
                "list of settings": sorted(source.settings),
                "list of parts": [*source.parts],
            }
            tokens += (
                (f"{what} of {name}", x) for what, x in properties.items()
            )
            settings = sorted(source.settings.items())
            numbers += ((f"{what} of {name}", x) for what, x in settings)
            parts = [
                (f"{what} of {name}", x) for what, x in source.parts.items()
            ]
            remaining += reversed(parts)
        elif isinstance(source, Constant):
            tokens.append((place, "a constant"))
            tokens += (
                (f"{what} of {place}", x) for what, x in source.facts.items()
            )
            numbers.append((place, source))
        else:
            tokens.append((place, "nothing"))
    return Fingerprint(tokens, numbers)
