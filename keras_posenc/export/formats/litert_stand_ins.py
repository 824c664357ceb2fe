"""Converts a model without its weights, which are put into the file later.

TensorFlow's converter holds weights five times, and takes a second for 10 MB of
them. Here the large ones are constants of one number each, which the converter
keeps as one number until it writes them. This number says later which weight
belongs there.
"""

import contextlib
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.signatures.signature import Signature

_SMALLEST = 2**16  # numbers of a weight that is left out
# Numbers that are no sum, product or rounding of others that a model has.
_FIRST, _STEP = 1.0 + 2.0**-9, 2.0**-22
# Operators that keep all numbers, and those that read weights: whatever else
# reads a weight, the converter may compute with it.
_KEEPING = {"Identity", "Reshape", "Transpose"}
_READING = {"BatchMatMulV2", "BatchMatMulV3", "Einsum", "GatherV2", "MatMul"}
_NAMES = re.compile(r"[^A-Za-z0-9_./-]")


class StandIns:
    """Numbers in place of large weights.

    Args:
        signatures: The signatures that are converted.
        frozen: Their models.
    """

    def __init__(
        self, signatures: Sequence[Signature], frozen: FrozenModel
    ) -> None:
        weights = {
            id(weight): weight
            for signature in signatures
            for weight in signature.model.weights
        }
        self._frozen = frozen
        self._is_other = False  # whether anything else happens to weights
        # A square one may be transposed in the file, which nothing tells.
        self._weights = {
            float(np.float32(_FIRST + number * _STEP)): weight
            for number, weight in enumerate(weights.values())
            if weight.dtype == "float32"
            and len(weight.shape) == 2
            and len({*weight.shape}) == 2
            and 1 not in weight.shape
            and math.prod(weight.shape) >= _SMALLEST
        }

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._weights)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A scope in which graphs have the numbers instead of the weights."""
        makers = {
            id(weight): functools.partial(self._make, number, weight)
            for number, weight in self._weights.items()
        }
        scope = self._frozen.reading(
            [(each, makers[id(each)]) for each in self._weights.values()]
        )
        with scope:
            yield
        # Assigning to a weight would have replaced its maker.
        self._is_other |= any(
            scope.state_mapping[key] is not maker
            for key, maker in makers.items()
        )

    def _make(self, number: float, weight: Any) -> Any:
        import tensorflow as tf

        # Code that computes with a weight at once would get the number.
        self._is_other |= tf.executing_eagerly()
        name = _NAMES.sub("_", weight.path).lstrip("_/-")
        return tf.constant(
            number, tf.float32, shape=weight.shape, name=name or None
        )

    def fit(self, functions: Mapping[str, Any]) -> bool:
        """Returns whether only products and lookups read the numbers.

        Args:
            functions: The graph functions of the signatures.
        """
        return not self._is_other and all(
            _only_reads(nodes, returned, self._weights.keys())
            for function in functions.values()
            for nodes, returned in _graphs(function.graph.as_graph_def())
        )

    def fill(self, model: Any) -> bool:
        """Puts the weights into an unpacked file.

        Returns:
            Whether each constant of one of these numbers is a weight in one of
            its layouts, and no other constant can have been made of weights.
        """
        found = self._find(model)
        if self._is_other or found is None:
            return False
        for number, (weight, is_transposed) in found.items():
            # Of a tensor no copy, which Keras would make.
            value = np.asarray(self._frozen.own(weight).read_value())
            laid = np.ascontiguousarray(value.T if is_transposed else value)
            model.buffers[number].data = laid.reshape(-1).view("uint8")
        return True

    def _find(self, model: Any) -> dict[int, tuple[Any, bool]] | None:
        """Returns where which weight belongs, or None if that is unknown.

        The other constants are copied, so that the whole file can be freed.

        Returns:
            By the index of a buffer the weight, and whether it is transposed.
        """
        shapes: dict[int, list[tuple[int, ...]]] = {}
        for graph in model.subgraphs:
            for tensor in graph.tensors:
                shape = [] if tensor.shape is None else tensor.shape
                shapes.setdefault(tensor.buffer, []).append(
                    tuple(map(int, shape))
                )
        sizes = {math.prod(each.shape) for each in self._weights.values()}
        found: dict[int, tuple[Any, bool]] = {}
        for number, buffer in enumerate(model.buffers):
            data = buffer.data
            if not isinstance(data, np.ndarray):
                continue
            weight = None
            if data.size and not data.size % 4:
                first, last = (
                    float(each.view("float32")[0])
                    for each in (data[:4], data[-4:])
                )
                weight = self._weights.get(first)
            if weight is None:
                if data.size >= 4 * _SMALLEST and data.size // 4 in sizes:
                    return None  # the product of a weight and a scale
                buffer.data = data.copy()
                continue
            is_transposed = _is_transposed(weight, shapes.get(number, []))
            if first != last or is_transposed is None:
                return None
            found[number] = weight, is_transposed
            buffer.data = None
        placed = {id(weight) for weight, _ in found.values()}
        return found if len(placed) == len(self._weights) else None


def _is_transposed(
    weight: Any, shapes: Sequence[tuple[int, ...]]
) -> bool | None:
    """Returns whether a weight is transposed in tensors; None if unknown."""
    shape = tuple(weight.shape)
    found = {tuple(size for size in each if size != 1) for each in shapes}
    if found == {shape}:
        return False
    return True if found == {shape[::-1]} else None


def _graphs(graph: Any) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Yields the nodes of a graph and of its functions, by their names.

    With them the names of nodes that a function returns.
    """
    yield {node.name: node for node in graph.node}, set()
    for function in graph.library.function:
        yield (
            {node.name: node for node in function.node_def},
            {name.partition(":")[0] for name in function.ret.values()},
        )


def _only_reads(
    nodes: Mapping[str, Any], returned: set[str], numbers: Collection[float]
) -> bool:
    """Returns whether only products and lookups read constants of numbers.

    Each of them also reads something that is no constant: else the converter
    computes it.
    """
    kept: set[str] = set()
    for name, node in nodes.items():
        if node.op == "Const" and _number(node) in numbers:
            kept.add(name)
    constant = {name for name, node in nodes.items() if node.op == "Const"}
    size = -1
    while size != len(kept) + len(constant):
        size = len(kept) + len(constant)
        for name, node in nodes.items():
            sources = _sources(node)
            if sources and sources <= constant:
                constant.add(name)
            if node.op in _KEEPING and sources & kept:
                kept.add(name)
    return not kept & returned and all(
        node.op in _KEEPING
        or (node.op in _READING and not _sources(node) <= constant)
        for node in nodes.values()
        if _sources(node) & kept
    )


def _number(node: Any) -> float | None:
    """Returns the number of a constant that has only one."""
    values = node.attr["value"].tensor.float_val
    return float(values[0]) if len(values) == 1 else None


def _sources(node: Any) -> set[str]:
    return {
        name.removeprefix("^").partition(":")[0]
        for name in node.input
        if not name.startswith("^")
    }
