"""Rounds the weights of a LiteRT file of float32 to 8 bits or to float16.

TensorFlow's converter rounds a table of embeddings with one scale, and stores
it again if it is a kernel too, as in language models. Here each row of a table
has a scale, which halves the loss of the table.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_posenc.export.formats.litert_edit import Editor, kinds_of
from keras_posenc_worker.formats import litert_schema

SMALLEST = 1024  # numbers of a constant; smaller ones stay in float32
_MOST = 127  # of 8 bits, symmetric
_AT_ONCE = 2**22  # numbers that are rounded at a time, to save memory

# Operators with kernels: which input these are, the axis of channels that have
# scales of their own, and the version of the operator that also rounds its
# other input. Without a version, kernels are restored to float32.
_KERNELS = {
    "BATCH_MATMUL": (1, None, None),
    "CONV_2D": (1, 0, 5),
    "CONV_3D": (1, None, None),
    "DEPTHWISE_CONV_2D": (1, 3, 6),
    "FULLY_CONNECTED": (1, 0, 12),
    "TRANSPOSE_CONV": (1, 0, None),
}
_TABLES = {"EMBEDDING_LOOKUP": 1, "GATHER": 0}  # and which input these are


def round_weights(model: Any, mode: str) -> None:
    """Rounds the weights of an unpacked file.

    Constants that anything except products and lookups reads, such as positions
    and norms, stay as they are.

    Args:
        model: The file.
        mode: `"int8"`: products are computed in 8 bits where the runtime can,
            with inputs that it rounds vector by vector. `"int8-weights"` or
            `"float16"`: the runtime restores kernels to float32 once, as it is
            started.
    """
    rounding = _Rounding(model, mode)
    for graph in model.subgraphs:
        rounding.apply(graph)


def weights_of(model: Any, smallest: int = SMALLEST) -> dict[int, set[str]]:
    """Returns which kinds of operators read each weight of float32.

    Weights are finite constants of at least `smallest` numbers that only
    products and lookups read; by the indices of their buffers.
    """
    schema, kinds = litert_schema(), kinds_of(model)
    readers: dict[int, set[str]] = {}
    shapes: dict[int, set[tuple[int, ...]]] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            weight = place_of(kind, operator)
            for place, index in enumerate(operator.inputs):
                if index >= 0:
                    number = graph.tensors[index].buffer
                    own = kind if place == weight else ""
                    readers.setdefault(number, set()).add(own)
        for tensor in graph.tensors:
            # Zeros of several shapes may be one constant.
            found = shapes.setdefault(tensor.buffer, set())
            found.add(
                tuple(map(int, [] if tensor.shape is None else tensor.shape))
            )
            if tensor.type != schema.TensorType.FLOAT32:
                readers.setdefault(tensor.buffer, set()).add("")
        for index in graph.outputs:
            readers.setdefault(graph.tensors[index].buffer, set()).add("")
    return {
        number: found
        for number, found in readers.items()
        if "" not in found
        and len(shapes[number]) == 1
        and _is_weight(model.buffers[number].data, smallest)
    }


def place_of(kind: str, operator: Any) -> int | None:
    """Returns which input of an operator is its kernel or table, or None."""
    if kind == "GATHER":
        options = operator.builtinOptions
        if options is not None and (options.axis or options.batchDims):
            return None
    return _TABLES.get(kind, _KERNELS.get(kind, (None,))[0])


def _is_weight(data: Any, smallest: int) -> bool:
    if not isinstance(data, np.ndarray) or data.size < 4 * smallest:
        return False
    values = data.view("float32")
    # Both are NaN if any number is.
    return bool(np.isfinite(values.min()) and np.isfinite(values.max()))


class _Rounding:
    """Rounds the graphs of one file, which share their weights."""

    def __init__(self, model: Any, mode: str) -> None:
        self._model, self._mode = model, mode
        self._types = litert_schema().TensorType
        self._kinds = kinds_of(model)
        self._readers = weights_of(model, 1 if mode == "float16" else SMALLEST)
        if mode == "float16":  # larger weights would become infinite
            most = np.finfo("float16").max
            self._readers = {
                number: kinds
                for number, kinds in self._readers.items()
                if np.abs(model.buffers[number].data.view("float32")).max()
                <= most
            }
        self._halves: set[int] = set()
        self._scales: dict[int, np.ndarray] = {}
        self._tables: dict[int, int] = {}  # the buffers of tables' scales

    def apply(self, graph: Any) -> None:
        """Rounds the weights that one graph reads."""
        self._graph, self._edit = graph, Editor(self._model, graph)
        self._restored: dict[int, int] = {}
        first: list[Any] = []
        operators: list[Any] = []
        for operator in graph.operators:
            kind = self._kinds[operator.opcodeIndex]
            place = place_of(kind, operator)
            index = -1 if place is None else int(operator.inputs[place])
            weight = graph.tensors[index]
            if index < 0 or weight.buffer not in self._readers:
                operators.append(operator)
                continue
            self._round(weight)
            if kind == "GATHER" and self._mode != "float16":
                operators += self._look_up(operator, weight)
                continue
            if not self._multiplies(kind, operator):
                operator.inputs = [*operator.inputs]
                operator.inputs[place] = self._restore(index, first)
            operators.append(operator)
        graph.operators = [*first, *operators]

    def _round(self, weight: Any) -> None:
        """Gives a tensor halves, or integers with a scale for each row."""
        number = weight.buffer
        if self._mode == "float16":
            buffer = self._model.buffers[number]
            if number not in self._halves:
                self._halves.add(number)
                halves = buffer.data.view("float32").astype("float16")
                buffer.data = halves.view("uint8")
            weight.type = self._types.FLOAT16
            return
        axes = {
            0 if kind in _TABLES else _KERNELS[kind][1]
            for kind in self._readers[number]
        }
        axis = axes.pop() if len(axes) == 1 else None
        if number not in self._scales:
            buffer = self._model.buffers[number]
            values = buffer.data.view("float32").reshape(weight.shape)
            integers, scale = rounded(values, axis)
            buffer.data = integers.reshape(-1).view("uint8")
            self._scales[number] = scale
        quantization = litert_schema().QuantizationParametersT()
        quantization.scale = self._scales[number]
        quantization.zeroPoint = np.zeros(len(quantization.scale), "int64")
        quantization.quantizedDimension = axis or 0
        weight.type = self._types.INT8
        weight.quantization = quantization

    def _multiplies(self, kind: str, operator: Any) -> bool:
        """Makes an operator take integers, if it can; returns whether."""
        if self._mode == "float16":
            return False
        if kind == "EMBEDDING_LOOKUP":
            operator.opcodeIndex = self._edit.code(kind, 3)
            return True
        version = _KERNELS[kind][2]
        if version is None or self._mode != "int8":
            return False
        operator.opcodeIndex = self._edit.code(kind, version)
        if kind == "FULLY_CONNECTED":
            operator.builtinOptions.asymmetricQuantizeInputs = True
        return True

    def _look_up(self, operator: Any, table: Any) -> Iterator[Any]:
        """Yields operators that look rows of integers up, and scale them.

        LiteRT's EMBEDDING_LOOKUP does both, but takes ids of one dimension.
        """
        schema, edit = litert_schema(), self._edit
        _, ids = operator.inputs
        (output,) = operator.outputs
        result, options = self._graph.tensors[output], operator.builtinOptions
        integers = edit.tensor(result, "/integers", type=self._types.INT8)
        yield edit.operator("GATHER", operator.inputs, integers, options)
        floats = edit.tensor(result, "/floats")
        cast = schema.CastOptionsT()
        cast.inDataType, cast.outDataType = self._types.INT8, result.type
        yield edit.operator("CAST", [integers], floats, cast)
        scale, ones = self._scale_of(table), [1] * (len(table.shape) - 1)
        if len(self._scales[table.buffer]) > 1:
            shapes = {
                name: [*shape[: len(shape) - len(ones)], *ones]
                for name in ("shape", "shapeSignature")
                if (shape := getattr(result, name)) is not None
            }
            scales = edit.tensor(result, "/scales", **shapes)
            yield edit.operator("GATHER", [scale, ids], scales, options)
            scale = scales
        yield edit.operator(
            "MUL", [floats, scale], output, schema.MulOptionsT()
        )

    def _scale_of(self, table: Any) -> int:
        """Returns the tensor of a table's scales, one for each row."""
        scales = self._scales[table.buffer]
        if table.buffer not in self._tables:
            self._tables[table.buffer] = self._edit.buffer(scales)
        return self._edit.tensor(
            table,
            "/scale",
            type=self._types.FLOAT32,
            quantization=None,
            shape=[len(scales), *[1] * (len(table.shape) - 1)],
            shapeSignature=None,
            buffer=self._tables[table.buffer],
        )

    def _restore(self, index: int, first: list[Any]) -> int:
        """Returns the tensor of float32 that a kernel is restored to.

        Args:
            index: The kernel.
            first: Gets the operator that restores it, once in a graph.
        """
        if index not in self._restored:
            floats = self._edit.tensor(
                self._graph.tensors[index],
                "/floats",
                type=self._types.FLOAT32,
                quantization=None,
                buffer=0,  # which is always empty
            )
            first.append(self._edit.operator("DEQUANTIZE", [index], floats))
            self._restored[index] = floats
        return self._restored[index]


def rounded(
    values: np.ndarray, axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns integers and scales, whose products are the nearest numbers.

    Args:
        values: Finite numbers of float32.
        axis: The axis whose places have a scale each; None for one of all.
    """
    axes = tuple(i for i in range(values.ndim) if i != axis)
    most = np.maximum(
        values.max(axis=axes, keepdims=True),
        -values.min(axis=axes, keepdims=True),
    )
    scale = np.where(most == 0, 1, most / np.float32(_MOST)).astype("float32")
    scale = np.where(scale == 0, most, scale)  # of subnormal numbers
    integers = np.empty(values.shape, "int8")
    step = max(_AT_ONCE // max(values[:1].size, 1), 1)
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        found = values[rows] / (scale[rows] if axis == 0 else scale)
        integers[rows] = np.clip(np.rint(found), -_MOST, _MOST)
    return integers, scale.reshape(-1)
