"""Walks the graphs of two LiteRT files at once."""

from collections.abc import Iterator
from typing import Any

from keras_posenc_worker.comparing.arrays import is_rounding, told
from keras_posenc_worker.comparing.litert_graph import (
    Constant,
    File,
    Graph,
    OtherGraph,
    as_list,
    plain,
    require_same,
    scale_of,
)
from keras_posenc_worker.comparing.litert_tensors import Tensors
from keras_posenc_worker.comparing.litert_weights import (
    is_near,
    is_of,
    is_rounding_of,
    laid_out,
    reached,
)
from keras_posenc_worker.formats import by_value, litert_schema

# Of an operator; what else it has are tensors, or say nothing of what it does.
_SETTINGS = (
    *("builtinOptionsType", "builtinOptions", "builtinOptions2Type"),
    *("builtinOptions2", "customOptions", "customOptionsFormat"),
    *("mutatingVariableInputs", "largeCustomOptionsSize"),
)


class Walk:
    """What differs between what two files compute."""

    def __init__(
        self, one: File, other: File, values: dict[str, Any], is_static: bool
    ) -> None:
        self.one, self.other = one, other
        self.values = values
        self.is_static = is_static
        self.weights: set[str] = set()
        self.constants: set[str] = set()
        self.unsure: set[str] = set()
        self.folded: set[str] = set()
        self.graph: str | None = None
        self._remaining: list[tuple[int, int]] = []
        self._seen: set[tuple[int, int]] = set()

    def run(self, names: list[str]) -> None:
        """Compares what signatures compute, and the graphs that they call.

        Raises:
            OtherGraph: The files do not have the same operators.
        """
        files = self.one, self.other
        require_same("metadata", *([x for x, _ in f.metadata()] for f in files))
        require_same(
            "content of metadata", *(file.metadata() for file in files)
        )
        self._first(names)
        for name in names:
            first, second = (each.signatures[name] for each in files)
            pairs = []
            for side in ("inputs", "outputs"):
                a, b = (
                    {x.name: x.tensorIndex for x in getattr(each, side) or []}
                    for each in (first, second)
                )
                require_same(f"the names of its {side}", sorted(a), sorted(b))
                pairs += [(a[key], b[key]) for key in a]
                # By which those go who ask for no signature. Of outputs they
                # depend on what other signatures there are.
                if side == "inputs" or len(names) == len(self.other.signatures):
                    for key in a:
                        require_same(
                            f"the name of the tensor of {key.decode()}",
                            self.one.name(first, a[key]),
                            self.other.name(second, b[key]),
                        )
            indices = first.subgraphIndex, second.subgraphIndex
            self._seen.add(indices)
            self._graphs(*indices, pairs)
        while self._remaining:
            indices = self._remaining.pop()
            if indices not in self._seen:
                self._seen.add(indices)
                self._graphs(*indices, [])

    def _first(self, names: list[str]) -> None:
        """Requires the same graph to run where no signature is named."""
        orders = [
            sorted(names, key=lambda name: file.signatures[name].subgraphIndex)
            for file in (self.one, self.other)
        ]
        require_same("order of signatures", *orders)
        if not any(
            each.subgraphIndex == 0 for each in self.other.signatures.values()
        ):
            raise OtherGraph("the first graph belongs to no signature")

    def _graphs(self, i: int, j: int, pairs: list[tuple[int, int]]) -> None:
        one, other = (
            Graph(file, file.graphs[index])
            for file, index in ((self.one, i), (self.other, j))
        )
        tensors = Tensors(self, one, other)
        require_same(
            "the number of operators that write what others read",
            len(one.changing),
            len(other.changing),
        )
        for a, b in zip(one.changing, other.changing, strict=True):
            tensors.operators(a, b)
        for side in ("inputs", "outputs"):
            a, b = (as_list(getattr(each.graph, side)) for each in (one, other))
            require_same(f"the number of its {side}", len(a), len(b))
            pairs = [*pairs, *zip(a, b, strict=True)]
        tensors.run([(f"input or output {a}", a, b) for a, b in pairs])

    def compare_operators(self, a: Any, b: Any, graph: Any) -> str:
        """Compares two operators but for their tensors; returns their name."""
        kind = self.one.kind(a)
        name = kind[1] or by_value(litert_schema().BuiltinOperator)[kind[0]]
        require_same(name, kind, self.other.kind(b))
        self._settings(name, a, b)
        if self.is_static:
            self._bias(name, graph, b)
        return name

    def _settings(self, name: str, a: Any, b: Any) -> None:
        for setting in _SETTINGS:
            first, second = (
                dict(plain(setting, getattr(each, setting))) for each in (a, b)
            )
            require_same(
                f"the settings of {name}", sorted(first), sorted(second)
            )
            for key, value in first.items():
                if "subgraph" in key.lower():
                    if value >= 0 or second[key] >= 0:
                        self._remaining.append((value, second[key]))
                elif value == second[key]:
                    continue
                elif setting == "customOptions":  # with names in them
                    self.unsure.add(f"the options of {name}")
                else:
                    self.constants.add(
                        f"{key} of {name} is {second[key]}, not {value}"
                    )

    def _bias(self, name: str, graph: Any, operator: Any) -> None:
        """Requires the scale of a bias to be that of the sums beside it."""
        import numpy as np

        inputs = as_list(operator.inputs)
        places = {3: (0, 1, 2), 4: (2, 1, 3)}.get(len(inputs), ())
        if not places or min(inputs) < 0:
            return
        tensors = [graph.tensors[inputs[place]] for place in places]
        types = litert_schema().TensorType
        if [each.type for each in tensors[1:]] != [types.INT8, types.INT32]:
            return
        x, kernel, bias = (
            np.asarray(scale_of(each)[0], "float64") for each in tensors
        )
        if bias.shape != (x * kernel).shape or not np.allclose(
            bias, x * kernel, rtol=1e-5, atol=0
        ):
            self.constants.add(
                f"the scale of the bias of {name} is not the model's"
            )

    def compare_constants(
        self, place: str, one: Constant, other: Constant
    ) -> None:
        """Compares two constants that stand in the same place."""
        if one.content == other.content and (
            (one.scale, one.zero, one.axis)
            == (other.scale, other.zero, other.axis)
        ):
            return
        words = told(place, one.array, other.array)
        sources = list(self._sources(one))
        if self.is_static and one.is_rounded and other.is_rounded:
            if any(is_rounding_of(value, other, True) for _, value in sources):
                return
            if not sources and is_near(one, other):  # of several weights
                return
        if sources:
            self.weights.add(" or ".join(sorted({name for name, _ in sources})))
        elif (
            one.array.shape == other.array.shape
            and (one.scale, one.zero) == (other.scale, other.zero)
            and is_rounding(one.array, other.array)
        ):
            self.unsure.add(f"the last bits: {words}")
        else:
            self.constants.add(words)

    def _sources(self, constant: Constant) -> Iterator[tuple[str, Any]]:
        """The weights that a constant is, and how they lie in it."""
        for name, value in self.values.items():
            for laid in laid_out(value, constant):
                if is_of(laid, constant, self.is_static):
                    yield name, laid
                    break

    def compare_weights(self, names: list[str]) -> None:
        """Looks for what the reference has of the model's weights."""
        ours = reached(self.one, names)
        theirs = reached(self.other, names)
        for name, value in self.values.items():
            if not value.size:
                continue
            if not self._has(ours, value):
                self.folded.add(name)
            elif not self._has(theirs, value):
                self.weights.add(name)

    def _has(self, constants: list[Constant], value: Any) -> bool:
        return any(
            is_of(laid, constant, self.is_static)
            for constant in constants
            # A bias has the step of sums, which nothing here tells.
            if not (constant.is_rounded and constant.array.dtype == "int32")
            for laid in laid_out(value, constant)
        )
