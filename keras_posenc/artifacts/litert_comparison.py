"""Compares a LiteRT file with the one that its model becomes.

Self-contained, in a process of its own: the file may come from anywhere. It is
parsed here, and not run. Both files' operators are walked at once, from what a
signature answers to what it takes, and into every graph that they call: names
and the order of operators do not matter, and nothing that no answer needs.
"""

import functools
import json
import mmap
import sys
import types
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

_HALF = 0.5 * (1 + 1e-3)  # a step of rounding, as float32 may fall
_SHOWN = 300  # characters
_PREFIX = "weights/"
# Of an operator; what else it has are tensors, or say nothing of what it does.
_SETTINGS = (
    *("builtinOptionsType", "builtinOptions", "builtinOptions2Type"),
    *("builtinOptions2", "customOptions", "customOptionsFormat"),
    *("mutatingVariableInputs", "largeCustomOptionsSize"),
)


def prepare() -> None:
    """Imports what knows the format ahead of time."""
    import numpy  # noqa: F401

    _schema()


def main(
    reference: str, artifact: str, names: str, weights: str, is_static: str
) -> None:
    """Prints in what an artifact differs from a reference.

    That is JSON of `weights`, the names of those that are not in it as the
    reference has them; of `constants`, other numbers and settings that differ,
    in words; of `unsure`, those that may for a good reason, in words; and of
    `graph`, what is another operator, in words, or None. Of another graph
    nothing is compared but the weights; `folded` are the names of those that
    the reference does not have as they are, and that so nobody looked for.

    Args:
        reference: The path of the file that the model becomes here.
        artifact: The path of the file to judge.
        names: JSON of the names of the reference's signatures.
        weights: The path of an npz file of the model's weights, by their names
            behind "weights/", or "" to learn only whether anything differs.
        is_static: "static" where the ranges of what comes in were measured on
            inputs that are known to the artifact's maker alone.
    """
    import numpy as np

    one, other = _File(reference), _File(artifact)
    values = {}
    if weights:
        with np.load(weights, allow_pickle=False) as found:
            values = {
                name.removeprefix(_PREFIX): value
                for name, value in found.items()
            }
    walk = _Walk(one, other, values, bool(is_static))
    try:
        walk.run(json.loads(names))
    except _OtherGraph as difference:
        walk.graph = str(difference)[:_SHOWN]
        walk.constants.clear()
        walk.unsure.clear()
        walk.compare_weights(json.loads(names))
    print(
        json.dumps(
            {
                "weights": sorted(walk.weights),
                "constants": sorted(walk.constants),
                "unsure": sorted(walk.unsure),
                "folded": sorted(walk.folded),
                "graph": walk.graph,
            }
        )
    )


class _OtherGraph(Exception):
    """An operator, or what it comes from, is another; the message says how."""


class _File:
    """A LiteRT file, with its constants as arrays."""

    def __init__(self, path: str) -> None:
        schema = _schema()
        with Path(path).open("rb") as file:  # need not be in memory
            self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.model = schema.ModelT.InitFromObj(
            schema.Model.GetRootAs(self._content, 0)
        )
        self.graphs = self.model.subgraphs
        self.signatures = {
            each.signatureKey.decode(): each
            for each in self.model.signatureDefs or []
        }
        if len(self.signatures) != len(self.model.signatureDefs or []):
            raise ValueError("a signature is in the file twice")

    def kind(self, operator: Any) -> tuple[int, str]:
        """What an operator does, in whatever version."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return (
            max(code.builtinCode, code.deprecatedBuiltinCode),
            (code.customCode or b"").decode(),
        )

    def constant(self, tensor: Any) -> "_Constant | None":
        """What a tensor holds before anything runs."""
        buffer = self.model.buffers[tensor.buffer]
        data, begin = buffer.data, buffer.offset
        if begin > 1:  # behind the flatbuffer, in files beyond its size
            if data is not None and len(data):
                raise _OtherGraph("a constant has its numbers twice")
            data = self._content[begin : begin + buffer.size]
        if data is None or not len(data):
            return None
        return _Constant(tensor, bytes(data))


class _Constant:
    """Numbers of a file, and how they are meant."""

    def __init__(self, tensor: Any, data: bytes) -> None:
        import numpy as np

        self.content = data
        self.type = tensor.type
        names = _by_value(_schema().TensorType)
        try:
            dtype = np.dtype(names[tensor.type].lower())
            shape = _list(tensor.shape)
            self.array = np.frombuffer(data, dtype).reshape(shape)
        except (KeyError, TypeError, ValueError):  # such as strings
            self.array = np.frombuffer(data, "uint8")
        self.scale, self.zero, self.axis = _scale(tensor)

    @property
    def is_rounded(self) -> bool:
        """Whether these are integers that stand for real numbers."""
        return len(self.scale) > 0 and self.array.dtype.kind == "i"

    def by_channel(self, values: list[Any]) -> Any:
        """Values, one or one for each channel, laid out for the array."""
        import numpy as np

        if len(values) == 1:
            return np.float64(values[0])
        shape = [1] * self.array.ndim
        shape[self.axis] = len(values)
        return np.reshape(np.asarray(values, "float64"), shape)

    def real(self) -> Any:
        """The numbers that the integers stand for."""
        return (self.array - self.by_channel(self.zero)) * self.by_channel(
            self.scale
        )

    def is_whole(self) -> bool:
        """Whether its scales are as many as it needs."""
        return len(self.zero) == len(self.scale) and (
            len(self.scale) == 1
            or (
                0 <= self.axis < self.array.ndim
                and len(self.scale) == self.array.shape[self.axis]
            )
        )


class _Walk:
    """What differs between what two files compute."""

    def __init__(
        self, one: _File, other: _File, values: dict[str, Any], is_static: bool
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
            _OtherGraph: The files do not have the same operators.
        """
        for name in names:
            first, second = (
                each.signatures[name] for each in (self.one, self.other)
            )
            pairs = []
            for side in ("inputs", "outputs"):
                a, b = (
                    {x.name: x.tensorIndex for x in getattr(each, side) or []}
                    for each in (first, second)
                )
                _same("the names of its inputs", sorted(a), sorted(b))
                pairs += [(a[key], b[key]) for key in a]
            indices = first.subgraphIndex, second.subgraphIndex
            self._seen.add(indices)
            self._graphs(*indices, pairs)
        while self._remaining:
            indices = self._remaining.pop()
            if indices not in self._seen:
                self._seen.add(indices)
                self._graphs(*indices, [])

    def _graphs(self, i: int, j: int, pairs: list[tuple[int, int]]) -> None:
        one, other = (
            _Graph(file, file.graphs[index])
            for file, index in ((self.one, i), (self.other, j))
        )
        tensors = _Tensors(self, one, other)
        _same(
            "the number of operators that change what others read",
            len(one.changing),
            len(other.changing),
        )
        for a, b in zip(one.changing, other.changing, strict=True):
            tensors.operators(a, b)
        for side in ("inputs", "outputs"):
            a, b = (_list(getattr(each.graph, side)) for each in (one, other))
            _same(f"the number of its {side}", len(a), len(b))
            pairs = [*pairs, *zip(a, b, strict=True)]
        tensors.run([(f"input or output {a}", a, b) for a, b in pairs])

    def compare_operators(self, a: Any, b: Any, graph: Any) -> str:
        """Compares two operators but for their tensors; returns their name."""
        kind = self.one.kind(a)
        name = kind[1] or _by_value(_schema().BuiltinOperator)[kind[0]]
        _same(name, kind, self.other.kind(b))
        self._settings(name, a, b)
        if self.is_static:
            self._bias(name, graph, b)
        return name

    def _settings(self, name: str, a: Any, b: Any) -> None:
        for setting in _SETTINGS:
            first, second = (
                dict(_plain(setting, getattr(each, setting))) for each in (a, b)
            )
            _same(f"the settings of {name}", sorted(first), sorted(second))
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
        """That a bias has the step that the sums of products have."""
        import numpy as np

        inputs = _list(operator.inputs)
        places = {3: (0, 1, 2), 4: (2, 1, 3)}.get(len(inputs), ())
        if not places or min(inputs) < 0:
            return
        tensors = [graph.tensors[inputs[place]] for place in places]
        types = _schema().TensorType
        if [each.type for each in tensors[1:]] != [types.INT8, types.INT32]:
            return
        x, kernel, bias = (
            np.asarray(_scale(each)[0], "float64") for each in tensors
        )
        if bias.shape != (x * kernel).shape or not np.allclose(
            bias, x * kernel, rtol=1e-5, atol=0
        ):
            self.constants.add(f"the scale of the bias of {name} is another")

    def compare_constants(
        self, place: str, one: _Constant, other: _Constant
    ) -> None:
        """Compares two constants that stand in the same place."""
        if one.content == other.content and (
            (one.scale, one.zero, one.axis)
            == (other.scale, other.zero, other.axis)
        ):
            return
        words = f"{place} is {_shown(other)}, not {_shown(one)}"
        sources = list(self._sources(one))
        if self.is_static and one.is_rounded and other.is_rounded:
            if any(_is_rounding_of(value, other, True) for _, value in sources):
                return
            if not sources and _is_near(one, other):  # of several weights
                return
        if sources:
            self.weights.add(" or ".join(sorted({name for name, _ in sources})))
        elif (
            one.array.shape == other.array.shape
            and (one.scale, one.zero) == (other.scale, other.zero)
            and _arrays().is_rounding(one.array, other.array)
        ):
            self.unsure.add(f"the last bits: {words}")
        else:
            self.constants.add(words)

    def _sources(self, constant: _Constant) -> Iterator[tuple[str, Any]]:
        """The weights that a constant is, and how they lie in it."""
        for name, value in self.values.items():
            for laid in _laid_out(value, constant):
                if _is_of(laid, constant, self.is_static):
                    yield name, laid
                    break

    def compare_weights(self, names: list[str]) -> None:
        """Looks for what the reference has of the model's weights."""
        ours = _reached(self.one, names)
        theirs = _reached(self.other, names)
        for name, value in self.values.items():
            if not value.size:
                continue
            if not self._has(ours, value):
                self.folded.add(name)
            elif not self._has(theirs, value):
                self.weights.add(name)

    def _has(self, constants: list[_Constant], value: Any) -> bool:
        return any(
            _is_of(laid, constant, self.is_static)
            for constant in constants
            # A bias has the step of sums, which nothing here tells.
            if not (constant.is_rounded and constant.array.dtype == "int32")
            for laid in _laid_out(value, constant)
        )


class _Graph:
    """What makes each tensor of a graph.

    Operators run in their order. An order in which each tensor is written once,
    and before it is read, is as good as any other.
    """

    def __init__(self, file: _File, graph: Any) -> None:
        self.file, self.graph = file, graph
        self.inputs = [*_list(graph.inputs)]
        self.makers: dict[int, tuple[Any, int]] = {}
        self.changing = []  # variables, say, and so in an order of their own
        resource = _schema().TensorType.RESOURCE
        read: set[int] = set()
        for operator in graph.operators:
            sources = [index for index in _list(operator.inputs) if index >= 0]
            outputs = _list(operator.outputs)
            if not outputs or any(
                graph.tensors[index].type == resource for index in sources
            ):
                self.changing.append(operator)
            read.update(sources)
            for place, index in enumerate(outputs):
                if (
                    index in read
                    or index in self.makers
                    or index in self.inputs
                    or self.constant(index) is not None
                ):
                    raise _OtherGraph(f"tensor {index} is written over")
                self.makers[index] = operator, place

    def constant(self, index: int) -> _Constant | None:
        """What a tensor holds before anything runs."""
        return self.file.constant(self.graph.tensors[index])


class _Tensors:
    """Which tensor of one graph is which of the other."""

    def __init__(self, walk: _Walk, one: _Graph, other: _Graph) -> None:
        self._walk = walk
        self._one, self._other = one, other
        self._pairs: dict[int, int] = {}
        self._states: dict[int, int] = {}
        self._operators: dict[int, Any] = {}
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
                raise _OtherGraph("an operator is another")
            return
        self._operators[id(a)] = b
        name = self._walk.compare_operators(a, b, self._other.graph)
        for side in ("inputs", "intermediates", "outputs"):
            first, second = _list(getattr(a, side)), _list(getattr(b, side))
            _same(f"the {side} of {name}", len(first), len(second))
            self._remaining += [
                (f"{side[:-1]} {place} of {name}", x, y)
                for place, (x, y) in enumerate(zip(first, second, strict=True))
            ]

    def _tensors(self, place: str, a: int, b: int) -> None:
        if a < 0 or b < 0:  # what an operator may go without
            _same(place, a, b)
            return
        if a in self._pairs:
            if self._pairs[a] != b:
                self._constants(place, a, b, or_raise=True)
            return
        self._pairs[a] = b
        one, other = self._one.graph.tensors[a], self._other.graph.tensors[b]
        for what in ("type", "shape", "shapeSignature", "isVariable"):
            first, second = (
                _value(getattr(each, what)) for each in (one, other)
            )
            _same(f"the {what} of {place}", first or None, second or None)
        for what in ("sparsity", "variantTensors", "externalBuffer"):
            first, second = (
                list(_plain(what, getattr(each, what))) for each in (one, other)
            )
            _same(f"the {what} of {place}", first, second)
        if self._constants(place, a, b):
            return
        if not self._walk.is_static and _scale(one) != _scale(other):
            self._walk.constants.add(f"the scale of {place} is another")
        graphs = (self._one, a), (self._other, b)
        inputs = [
            graph.inputs.index(index) if index in graph.inputs else None
            for graph, index in graphs
        ]
        _same(f"the input that is {place}", *inputs)
        makers = [graph.makers.get(index) for graph, index in graphs]
        if makers[0] is None or makers[1] is None:
            _same(f"an operator that makes {place}", *map(bool, makers))
            # An input, or a state, of which each has one of its own.
            if self._states.setdefault(b, a) != a:
                raise _OtherGraph(f"{place} is another tensor")
            return
        _same(f"the output that is {place}", makers[0][1], makers[1][1])
        self.operators(makers[0][0], makers[1][0])

    def _constants(
        self, place: str, a: int, b: int, or_raise: bool = False
    ) -> bool:
        """Compares two constants, if both tensors are constants."""
        one, other = self._one.constant(a), self._other.constant(b)
        _same(f"a constant as {place}", one is not None, other is not None)
        if one is not None and other is not None:
            self._walk.compare_constants(place, one, other)
            return True
        if or_raise:
            raise _OtherGraph(f"{place} is another tensor")
        return False


def _reached(file: _File, names: list[str]) -> list[_Constant]:
    """The constants that signatures' outputs, or states, come from."""
    found: dict[tuple[int, int], _Constant] = {}
    remaining = []
    for name in names:
        signature = file.signatures[name]
        index = signature.subgraphIndex
        remaining += [
            (index, each.tensorIndex) for each in signature.outputs or []
        ]
    entered: set[int] = set()
    seen = set()
    makers: dict[int, dict[int, Any]] = {}

    def follow(index: int, operator: Any) -> None:
        remaining.extend((index, i) for i in _list(operator.inputs))
        for setting in ("builtinOptions", "builtinOptions2"):
            for key, value in _plain(setting, getattr(operator, setting)):
                if "subgraph" in key.lower() and value >= 0:
                    remaining.extend(
                        (value, i) for i in _list(file.graphs[value].outputs)
                    )
                    enter(value)

    def enter(index: int) -> None:
        if index in entered:
            return
        entered.add(index)
        makers[index] = {}
        for operator in file.graphs[index].operators:
            outputs = _list(operator.outputs)
            makers[index].update(dict.fromkeys(outputs, operator))
            if not outputs:  # it changes what others read
                follow(index, operator)

    while remaining:
        index, tensor = remaining.pop()
        if tensor < 0 or (index, tensor) in seen:
            continue
        seen.add((index, tensor))
        enter(index)
        if tensor in makers[index]:
            follow(index, makers[index][tensor])
            continue
        value = file.graphs[index].tensors[tensor]
        constant = file.constant(value)
        if constant is not None:
            found[index, tensor] = constant
    return list(found.values())


def _laid_out(value: Any, constant: _Constant) -> Iterator[Any]:
    """A weight with its axes in each order, in a constant's shape."""
    if value.size == constant.array.size:
        for each in _arrays().layouts(value):
            yield each.reshape(constant.array.shape)


def _is_of(value: Any, constant: _Constant, is_static: bool) -> bool:
    """Whether a constant is a weight, or is rounded from it as it should."""
    import numpy as np

    if constant.is_rounded and value.dtype.kind == "f":
        return _is_rounding_of(value, constant, is_static)
    if constant.array.dtype == "float16":
        with np.errstate(over="ignore"):
            value = value.astype("float16")
    return bool(
        value.dtype == constant.array.dtype
        and np.ascontiguousarray(value).tobytes() == constant.content
    )


def _is_rounding_of(value: Any, constant: _Constant, is_static: bool) -> bool:
    """Whether integers are a weight's, by a scale that is right for it.

    A scale is right that the largest number of its channel, or of all, comes
    from. Where it was measured, on some rows of a table or on what comes in,
    it may be less, and what is beyond is cut off.
    """
    import numpy as np

    if not constant.is_whole():
        return False
    scale = constant.by_channel(constant.scale)
    zero = constant.by_channel(constant.zero)
    if not (np.all(np.isfinite(scale)) and np.all(scale > 0)):
        return False
    value = value.astype("float64")
    limits = np.iinfo(constant.array.dtype)
    is_measured = (
        is_static
        and constant.array.dtype == "int8"
        and len(constant.scale) == 1
    )
    if not np.all(
        (zero >= limits.min) & (zero <= limits.max)
        if is_measured
        else zero == 0
    ):
        return False
    if constant.array.dtype == "int8":
        axes: tuple[int, ...] | None = None
        if len(constant.scale) > 1:
            axes = tuple(i for i in range(value.ndim) if i != constant.axis)
        low = np.minimum(np.min(value, axis=axes, keepdims=True), 0)
        high = np.maximum(np.max(value, axis=axes, keepdims=True), 0)
        right = np.maximum(-low, high) / 127
        is_empty = right == 0
        is_right = np.abs(scale / np.where(is_empty, 1, right) - 1) <= 1e-6
        if is_measured:
            is_right |= scale <= (high - low) / 255 * (1 + 1e-6)
        if not np.all(is_right | is_empty):
            return False
    wanted = np.clip(value / scale + zero, limits.min, limits.max)
    return bool(np.all(np.abs(constant.array - wanted) <= _HALF))


def _is_near(one: _Constant, other: _Constant) -> bool:
    """Whether integers of two scales are of numbers that may be the same."""
    import numpy as np

    if not (one.is_whole() and other.is_whole()):
        return False
    step = one.by_channel(one.scale) + other.by_channel(other.scale)
    return bool(np.all(np.abs(one.real() - other.real()) <= _HALF * step))


def _scale(tensor: Any) -> tuple[list[float], list[int], int]:
    """The scales of a tensor's integers, their zeros, and the axis of both."""
    found = tensor.quantization
    if found is None or found.scale is None:
        return [], [], 0
    scale, zero = _list(found.scale), _list(found.zeroPoint)
    return scale, zero or [0] * len(scale), found.quantizedDimension


def _same(what: str, one: Any, other: Any) -> None:
    if one != other:
        raise _OtherGraph(f"{what}: {other}, not {one}")


def _plain(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers and texts of a message, by the names of its fields."""
    if hasattr(value, "__dict__"):
        for key, each in vars(value).items():
            yield from _plain(f"{name}.{key}", each)
    else:
        yield name, _value(value)


def _value(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list):
        return [list(_plain("", each)) for each in value]
    return value


def _list(values: Any) -> list[Any]:
    return [] if values is None else [*_value(values)]


def _shown(constant: _Constant) -> str:
    return str(_arrays().shown(constant.array))


def _by_value(names: type) -> dict[int, str]:
    return {
        value: name
        for name, value in vars(names).items()
        if isinstance(value, int)
    }


@functools.cache
def _schema() -> Any:
    """The format, without the runtime that its package loads first."""
    spec = util.find_spec("ai_edge_litert")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("ai_edge_litert is not installed")
    (folder, *_) = spec.submodule_search_locations
    return _module(Path(folder, "schema_py_generated.py"))


@functools.cache
def _arrays() -> Any:
    """The other file of this folder, which is no package here."""
    return _module(Path(__file__).with_name("onnx_comparison.py"))


def _module(path: Path) -> types.ModuleType:
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
