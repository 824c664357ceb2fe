"""Pairs the tensors of two LiteRT graphs."""

from typing import Any

from keras_posenc_worker.comparing.litert_graph import (
    Graph,
    OtherGraph,
    as_list,
    plain,
    plain_value,
    require_same,
    scale_of,
)


class Tensors:
    """The pairs of tensors of two graphs."""

    def __init__(self, walk: Any, one: Graph, other: Graph) -> None:
        self._walk = walk
        self._one, self._other = one, other
        self._pairs: dict[int, int] = {}
        self._states: dict[int, int] = {}
        self._operators: dict[int, Any] = {}
        self._taken: set[int] = set()
        self._remaining: list[tuple[str, int, int]] = []

    def run(self, pairs: list[tuple[str, int, int]]) -> None:
        """Compares tensors, and all that they come from."""
        self._remaining += pairs
        while self._remaining:
            self._tensors(*self._remaining.pop())

    def operators(self, a: Any, b: Any) -> None:
        """Compares two operators, and has their tensors compared."""
        if id(a) in self._operators:
            if self._operators[id(a)] is not b:
                raise OtherGraph("an operator in another place")
            return
        if id(b) in self._taken:  # for two, which may draw random numbers
            raise OtherGraph("an operator in another place")
        self._operators[id(a)] = b
        self._taken.add(id(b))
        name = self._walk.compare_operators(a, b, self._other.graph)
        for side in ("inputs", "intermediates", "outputs"):
            first, second = as_list(getattr(a, side)), as_list(getattr(b, side))
            require_same(f"the {side} of {name}", len(first), len(second))
            self._remaining += [
                (f"{side[:-1]} {place} of {name}", x, y)
                for place, (x, y) in enumerate(zip(first, second, strict=True))
            ]

    def _tensors(self, place: str, a: int, b: int) -> None:
        if a < 0 or b < 0:  # what an operator may go without
            require_same(place, a, b)
            return
        if a in self._pairs:
            if self._pairs[a] != b:
                self._constants(place, a, b, or_raise=True)
            return
        self._pairs[a] = b
        one, other = self._one.graph.tensors[a], self._other.graph.tensors[b]
        for what in ("type", "shape", "shapeSignature", "isVariable"):
            first, second = (
                plain_value(getattr(each, what)) for each in (one, other)
            )
            require_same(
                f"the {what} of {place}", first or None, second or None
            )
        for what in ("sparsity", "variantTensors", "externalBuffer"):
            first, second = (
                list(plain(what, getattr(each, what))) for each in (one, other)
            )
            require_same(f"the {what} of {place}", first, second)
        if self._constants(place, a, b):
            return
        if not self._walk.is_static and scale_of(one) != scale_of(other):
            self._walk.constants.add(f"another scale of {place}")
        graphs = (self._one, a), (self._other, b)
        inputs = [
            graph.inputs.index(index) if index in graph.inputs else None
            for graph, index in graphs
        ]
        require_same(f"the input that is {place}", *inputs)
        makers = [graph.makers.get(index) for graph, index in graphs]
        if makers[0] is None or makers[1] is None:
            require_same(f"an operator that makes {place}", *map(bool, makers))
            # An input, or a state, of which each has one of its own.
            if self._states.setdefault(b, a) != a:
                raise OtherGraph(f"{place} is a different tensor")
            return
        require_same(f"the output that is {place}", makers[0][1], makers[1][1])
        self.operators(makers[0][0], makers[1][0])

    def _constants(
        self, place: str, a: int, b: int, or_raise: bool = False
    ) -> bool:
        """Compares two constants, if both tensors are constants."""
        one, other = self._one.constant(a), self._other.constant(b)
        require_same(
            f"a constant as {place}", one is not None, other is not None
        )
        if one is not None and other is not None:
            self._walk.compare_constants(place, one, other)
            return True
        if or_raise:
            raise OtherGraph(f"{place} is a different tensor")
        return False
