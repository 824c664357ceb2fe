"""Compares an ONNX file with the one that its model becomes.

Self-contained, in a process of its own: the file may come from anywhere.
Both graphs are walked at once, from their outputs to their inputs, so that
names and the order of nodes do not matter, and nothing that no output needs.
"""

from collections.abc import Sequence
from typing import Any

from keras_posenc_worker.comparing.arrays import (
    is_rounding,
    layouts,
    told,
)
from keras_posenc_worker.comparing.onnx_graph import (
    Scope,
    as_array,
    digest_of,
    domain_of,
    reached_by,
)

_SHOWN = 300  # characters


def main(
    reference: str, artifact: str, weights: Sequence[str]
) -> dict[str, Any]:
    """Returns in what an artifact differs from a reference.

    That is `weights`, the names of those that it lacks; of
    `constants`, those of its graph that differ, in words; of `rounding`, those
    that do so in the last places alone; and of `graph`, what is another
    operator, in words, or None; and who its `writer` is, if another.

    Args:
        reference: The path of the file that the model becomes here.
        artifact: The path of the file to judge.
        weights: The names of the reference's weights.
    """
    import onnx

    models = [
        onnx.load(path, load_external_data=False)
        for path in (reference, artifact)
    ]
    one, other = (Scope(model.graph) for model in models)
    walk = _Walk(set(weights))
    versions = [_versions(model) for model in models]
    if versions[0] != versions[1]:
        walk.graph = f"operators of {versions[1]}, not of {versions[0]}"
    if len(models[1].opset_import) != len(versions[1]):
        walk.graph = "versions of operators twice"
    if models[1].functions:  # of whatever names
        walk.graph = "functions of its own, not with operators alone"
    walk.run(one, other)
    missing = walk.weights
    if walk.graph is not None:
        # What stands where nobody knows then, but whether it is there.
        found = {digest_of(array) for array in reached_by(other)}
        missing = {
            name
            for name in walk.names
            if found.isdisjoint(map(digest_of, layouts(one.array(name))))
        }
    return {
        "weights": sorted(missing),
        "constants": sorted(walk.constants),
        "rounding": sorted(walk.rounding),
        "graph": walk.graph,
        "writer": _writer(*models),
    }


class _Walk:
    """What differs between the expressions of two graphs' outputs."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.weights: set[str] = set()
        self.constants: set[str] = set()
        self.rounding: set[str] = set()
        self.graph: str | None = None
        self._remaining: list[tuple[Scope, str, Scope, str]] = []
        self._pairs: dict[Scope, Scope] = {}
        self._seen: set[Any] = set()
        self._taken: dict[int, int] = {}

    def run(self, one: Scope, other: Scope) -> None:
        """Compares the graphs' outputs by name, and all that they come from."""
        self._begin(one, other)
        while self._remaining:
            pair = self._remaining.pop()
            if pair not in self._seen:
                self._seen.add(pair)
                self._tensors(*pair)

    def _begin(self, one: Scope, other: Scope) -> None:
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

    def _tensors(self, one: Scope, a: str, other: Scope, b: str) -> None:
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
        one, other = as_array(a), as_array(b)
        if one.shape == other.shape and digest_of(one) == digest_of(other):
            return
        words = told(name, one, other)
        if name in self.names:
            self.weights.add(name)
        elif one.shape == other.shape and is_rounding(one, other):
            self.rounding.add(words)
        else:
            self.constants.add(words)

    def _nodes(
        self, one: Scope, a: Any, i: int, other: Scope, b: Any, j: int
    ) -> None:
        attributes = [
            {each.name: each for each in node.attribute} for node in (a, b)
        ]
        kinds = [
            (
                node.op_type,
                domain_of(node),
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
        # Two of one kind are not one, which may draw random numbers.
        if self._taken.setdefault(id(b), id(a)) != id(a):
            self._differ(f"{b.op_type} {b.name} twice", "two of them")
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
        self, name: str, one: Scope, a: Any, other: Scope, b: Any
    ) -> None:
        from onnx import AttributeProto, helper

        if a.type == AttributeProto.GRAPH:
            self._begin(Scope(a.g, one), Scope(b.g, other))
        elif a.type == AttributeProto.TENSOR:
            self._values(name, a.t, b.t)
        else:
            values = [helper.get_attribute_value(each) for each in (a, b)]
            if repr(values[0]) != repr(values[1]):
                self.constants.add(f"{name} is {values[1]}, not {values[0]}")


def _writer(reference: Any, artifact: Any) -> str:
    """Who wrote a file, as it says, in what is not as in the reference."""
    one, other = (
        {
            model.producer_name or "nobody": model.producer_version,
            **{each.key: each.value for each in model.metadata_props},
        }
        for model in (reference, artifact)
    )
    return ", ".join(
        f"{name} {version}".strip()
        for name, version in other.items()
        if one.get(name) != version
    )[:_SHOWN]


def _versions(model: Any) -> dict[str, int]:
    return {domain_of(each): each.version for each in model.opset_import}
