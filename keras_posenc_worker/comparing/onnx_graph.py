"""ONNX graphs as scopes of nodes and values."""

import hashlib
from collections.abc import Iterator
from typing import Any


class Scope:
    """What makes each tensor of a graph, and of the graphs around it."""

    def __init__(self, graph: Any, parent: "Scope | None" = None) -> None:
        self.graph = graph
        self.parent = parent
        self.inputs = [value.name for value in graph.input]
        self.constants = {each.name: each for each in graph.initializer}
        self.makers = {}
        for node in graph.node:
            for index, name in enumerate(node.output):
                self.makers[name] = (node, index)
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        names = [
            *(each.name for each in graph.initializer),
            *(name for node in graph.node for name in node.output if name),
        ]
        if len({*names}) < len(names):  # runtimes may take either
            raise ValueError("a tensor is in the file twice")

    def source(self, name: str) -> "tuple[Scope, str]":
        """The graph that a tensor is of, and its name before any Identity."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.inputs or name in scope.constants:
                return scope, name
            if name not in scope.makers:
                scope = scope.parent
                continue
            node, _ = scope.makers[name]
            if node.op_type != "Identity" or domain_of(node):
                return scope, name
            name = node.input[0]
        raise ValueError(f"nothing makes the tensor {name!r}")

    def input(self, name: str) -> Any:
        """What tells an input: its name at the top, else its place."""
        if name not in self.inputs:
            return None
        place = self.inputs.index(name) if self.parent else name
        # A constant of its name is what it is by default.
        return place, name in self.constants

    def array(self, name: str) -> Any:
        """The values of a constant."""
        return as_array(self.constants[name])


def reached_by(top: Scope) -> Iterator[Any]:
    """The values of each constant that the outputs come from."""
    seen = set()
    remaining = [(top, value.name) for value in top.graph.output]
    while remaining:
        scope, name = remaining.pop()
        if not name:
            continue
        scope, name = scope.source(name)
        if (scope, name) in seen:
            continue
        seen.add((scope, name))
        if name in scope.constants:
            yield scope.array(name)
        elif name in scope.makers:
            node, _ = scope.makers[name]
            remaining += [(scope, source) for source in node.input]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    inner = Scope(attribute.g, scope)
                    remaining += [
                        (inner, value.name) for value in attribute.g.output
                    ]


def domain_of(message: Any) -> str:
    """The name that the standard has for a domain."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def as_array(tensor: Any) -> Any:
    """A tensor as an array."""
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)


def digest_of(array: Any) -> bytes:
    """Of the dtype and the numbers in their order, not of the shape."""
    content = array.tobytes()
    if array.dtype == object:  # strings, of which those bytes are addresses
        content = repr(array.tolist()).encode()
    return hashlib.sha256(array.dtype.str.encode() + content).digest()
