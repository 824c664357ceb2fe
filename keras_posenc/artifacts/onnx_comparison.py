"""Compares an ONNX file with the one that its model becomes.

Self-contained, in a process of its own: the file may come from anywhere.
Both graphs are walked at once, from their outputs to their inputs, so that
names and the order of nodes do not matter, and nothing that no output needs.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

_ROUNDING = 4  # units in the last place: how far processors fold apart
_SHOWN = 300  # characters


def main(reference: str, artifact: str, weights: str) -> None:
    """Prints in what an artifact differs from a reference.

    That is JSON of `weights`, the names of those that it lacks; of
    `constants`, those of its graph that differ, in words; of `rounding`, those
    that do so in the last places alone; and of `graph`, what is another
    operator, in words, or None; and whether it has the `same_writer`.

    Args:
        reference: The path of the file that the model becomes here.
        artifact: The path of the file to judge.
        weights: The names of the reference's weights, as JSON.
    """
    import onnx

    models = [
        onnx.load(path, load_external_data=False)
        for path in (reference, artifact)
    ]
    one, other = (_Scope(model.graph) for model in models)
    walk = _Walk(set(json.loads(weights)))
    versions = [_versions(model) for model in models]
    if versions[0] != versions[1]:
        walk.graph = f"operators of {versions[1]}, not of {versions[0]}"
    if models[1].functions:  # of whatever names
        walk.graph = "functions of its own, not with operators alone"
    walk.run(one, other)
    missing = walk.weights
    if walk.graph is not None:
        # What stands where nobody knows then, but whether it is there.
        found = {_digest(array) for array in _reached(other)}
        missing = {
            name
            for name in walk.names
            if found.isdisjoint(map(_digest, layouts(one.array(name))))
        }
    print(
        json.dumps(
            {
                "weights": sorted(missing),
                "constants": sorted(walk.constants),
                "rounding": sorted(walk.rounding),
                "graph": walk.graph,
                "same_writer": _writer(models[0]) == _writer(models[1]),
            }
        )
    )


class _Scope:
    """What makes each tensor of a graph, and of the graphs around it."""

    def __init__(self, graph: Any, parent: "_Scope | None" = None) -> None:
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

    def source(self, name: str) -> "tuple[_Scope, str]":
        """The graph that a tensor is of, and its name before any Identity."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.inputs or name in scope.constants:
                return scope, name
            if name not in scope.makers:
                scope = scope.parent
                continue
            node, _ = scope.makers[name]
            if node.op_type != "Identity" or _domain(node):
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
        return _array(self.constants[name])


class _Walk:
    """What differs between the expressions of two graphs' outputs."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.weights: set[str] = set()
        self.constants: set[str] = set()
        self.rounding: set[str] = set()
        self.graph: str | None = None
        self._remaining: list[tuple[_Scope, str, _Scope, str]] = []
        self._pairs: dict[_Scope, _Scope] = {}
        self._seen: set[Any] = set()

    def run(self, one: _Scope, other: _Scope) -> None:
        """Compares the graphs' outputs by name, and all that they come from."""
        self._begin(one, other)
        while self._remaining:
            pair = self._remaining.pop()
            if pair not in self._seen:
                self._seen.add(pair)
                self._tensors(*pair)

    def _begin(self, one: _Scope, other: _Scope) -> None:
        self._pairs[one] = other
        names = [
            [value.name for value in scope.graph.output]
            for scope in (one, other)
        ]
        if one.parent is None:  # else they are told by their order
            names = [sorted(each) for each in names]
            if names[0] != names[1]:
                self._differ(f"the outputs {names[1]}", names[0])
        if len(names[0]) != len(names[1]):
            self._differ(f"{len(names[1])} outputs", len(names[0]))
        self._remaining += [
            (one, a, other, b) for a, b in zip(*names, strict=False)
        ]

    def _differ(self, found: Any, wanted: Any) -> None:
        self.graph = self.graph or f"{found}, not {wanted}"[:_SHOWN]

    def _tensors(self, one: _Scope, a: str, other: _Scope, b: str) -> None:
        if not a or not b:  # what an operator may go without
            if a or b:
                self._differ(repr(b), repr(a))
            return
        (one, a), (other, b) = one.source(a), other.source(b)
        if a in one.inputs or b in other.inputs:
            if self._pairs.get(one) is not other or one.input(a) != other.input(
                b
            ):
                self._differ(f"the tensor {b!r}", repr(a))
        elif a in one.constants and b in other.constants:
            self._values(a, one.constants[a], other.constants[b])
        elif a in one.constants or b in other.constants:
            self._differ(f"the tensor {b!r}", repr(a))
        else:
            self._nodes(one, *one.makers[a], other, *other.makers[b])

    def _values(self, name: str, a: Any, b: Any) -> None:
        one, other = _array(a), _array(b)
        if one.shape == other.shape and _digest(one) == _digest(other):
            return
        words = f"{name} is {shown(other)}, not {shown(one)}"
        if name in self.names:
            self.weights.add(name)
        elif one.shape == other.shape and is_rounding(one, other):
            self.rounding.add(words)
        else:
            self.constants.add(words)

    def _nodes(
        self, one: _Scope, a: Any, i: int, other: _Scope, b: Any, j: int
    ) -> None:
        attributes = [
            {each.name: each for each in node.attribute} for node in (a, b)
        ]
        kinds = [
            (
                node.op_type,
                _domain(node),
                len(node.input),
                len(node.output),
                index,
                *sorted((each.name, each.type) for each in node.attribute),
            )
            for node, index in ((a, i), (b, j))
        ]
        if kinds[0] != kinds[1]:
            self._differ(kinds[1], kinds[0])
            return
        self._remaining += [
            (one, x, other, y) for x, y in zip(a.input, b.input, strict=True)
        ]
        # Else once for each output of theirs.
        if (id(a), id(b)) not in self._seen:
            self._seen.add((id(a), id(b)))
            for name, attribute in attributes[0].items():
                self._attributes(
                    f"{name} of {a.op_type} {a.name}",
                    one,
                    attribute,
                    other,
                    attributes[1][name],
                )

    def _attributes(
        self, name: str, one: _Scope, a: Any, other: _Scope, b: Any
    ) -> None:
        from onnx import AttributeProto, helper

        if a.type == AttributeProto.GRAPH:
            self._begin(_Scope(a.g, one), _Scope(b.g, other))
        elif a.type == AttributeProto.TENSOR:
            self._values(name, a.t, b.t)
        else:
            values = [helper.get_attribute_value(each) for each in (a, b)]
            if repr(values[0]) != repr(values[1]):
                self.constants.add(f"{name} is {values[1]}, not {values[0]}")


def _reached(top: _Scope) -> Iterator[Any]:
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
                    inner = _Scope(attribute.g, scope)
                    remaining += [
                        (inner, value.name) for value in attribute.g.output
                    ]


def layouts(array: Any) -> Iterator[Any]:
    """An array with its axes in each order, whatever its shape is then."""
    if array.ndim > 4:
        yield array
        return
    for order in itertools.permutations(range(array.ndim)):
        yield array.transpose(order)


def _writer(model: Any) -> tuple[Any, ...]:
    """Who wrote a file, in which versions, as it says."""
    written = sorted((each.key, each.value) for each in model.metadata_props)
    return model.producer_name, model.producer_version, written


def _versions(model: Any) -> dict[str, int]:
    return {_domain(each): each.version for each in model.opset_import}


def _domain(message: Any) -> str:
    return "" if message.domain == "ai.onnx" else str(message.domain)


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)


def _digest(array: Any) -> bytes:
    """Of the dtype and the numbers in their order, not of the shape."""
    content = array.tobytes()
    if array.dtype == object:  # strings, of which those bytes are addresses
        content = repr(array.tolist()).encode()
    return hashlib.sha256(array.dtype.str.encode() + content).digest()


def shown(array: Any) -> str:
    """A number, or what kind of array it is."""
    if array.size == 1:
        return repr(array.item())
    return f"{array.dtype} of shape {array.shape}"


def is_rounding(one: Any, other: Any) -> bool:
    """Whether two arrays may be one, computed on different processors."""
    import numpy as np

    if one.dtype != other.dtype or one.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):  # infinities, NaN
        step = np.spacing(np.maximum(np.abs(one), np.abs(other)))
        return bool(
            np.all(
                (np.abs(one - other) <= _ROUNDING * step)
                | (one == other)
                | (np.isnan(one) & np.isnan(other))
            )
        )
