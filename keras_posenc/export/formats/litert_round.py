"""Rounds the weights of a LiteRT file of float32 to 8 bits or to float16.

TensorFlow's converter rounds a table with one scale, and stores it again if it
is a kernel too. Here each row has a scale, which halves the table's loss.
"""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_posenc.export.formats.litert_edit import Editor, kinds_of
from keras_posenc_worker.formats import litert_schema

SMALLEST = 1024  # numbers of a constant; smaller ones stay in float32
_MOST = 127  # of 8 bits, symmetric

# Operators with kernels or tables: which input these are, the axis of channels
# or rows that have scales of their own, and the version of the operator that
# takes 8 bits, and rounds its other input. Without a version, kernels are
# restored to float32.
_WEIGHTS = {
    "BATCH_MATMUL": (1, None, None),
    "CONV_2D": (1, 0, 5),
    "CONV_3D": (1, None, None),
    "DEPTHWISE_CONV_2D": (1, 3, 6),
    "EMBEDDING_LOOKUP": (1, 0, 3),
    "FULLY_CONNECTED": (1, 0, 12),
    "GATHER": (0, 0, None),
    "TRANSPOSE_CONV": (1, 0, None),
}


def round_weights(model: Any, mode: str) -> None:
    """Rounds the weights of an unpacked file.

    In int8, the runtime computes products in 8 bits where it can. In the other
    modes it restores kernels to float32 once, as it is started.
    """
    is_half = mode == "float16"
    weights = _halves(model) if is_half else _integers(model)
    kinds, types = kinds_of(model), litert_schema().TensorType
    for graph in model.subgraphs:
        edit, restored, first = Editor(model, graph), dict[int, int](), []
        for tensor in [x for x in graph.tensors if x.buffer in weights]:
            tensor.type = types.FLOAT16 if is_half else types.INT8
            tensor.quantization = weights[tensor.buffer]
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            place = place_of(kind, operator)
            index = -1 if place is None else int(operator.inputs[place])
            if (
                index < 0
                or graph.tensors[index].buffer not in weights
                or _takes_integers(edit, kind, operator, mode)
            ):
                continue
            if index not in restored:
                restored[index] = edit.tensor(
                    graph.tensors[index],
                    "/floats",
                    type=types.FLOAT32,
                    quantization=None,
                    buffer=0,  # which is always empty
                )
                first.append(
                    edit.operator("DEQUANTIZE", [index], restored[index])
                )
            operator.inputs = [*operator.inputs]
            operator.inputs[place] = restored[index]
        graph.operators = [*first, *graph.operators]


def _halves(model: Any) -> dict[int, None]:
    """Rounds weights to float16, except those that would become infinite."""
    found: dict[int, None] = {}
    for number in weights_of(model, 1):
        buffer = model.buffers[number]
        values = buffer.data.view("float32")
        if np.abs(values).max() <= np.finfo("float16").max:
            buffer.data = values.astype("float16").view("uint8")
            found[number] = None
    return found


def _integers(model: Any) -> dict[int, Any]:
    """Rounds weights to 8 bits; returns their scales as the schema has them."""
    look_up(model)
    shapes = {x.buffer: x.shape for g in model.subgraphs for x in g.tensors}
    found = {}
    for number, kinds in weights_of(model).items():
        if "GATHER" in kinds:
            continue
        axes = {_WEIGHTS[kind][1] for kind in kinds}
        axis = axes.pop() if len(axes) == 1 else None
        buffer = model.buffers[number]
        values = buffer.data.view("float32").reshape(shapes[number])
        integers, scale = _rounded(values, axis)
        buffer.data = integers.reshape(-1).view("uint8")
        quantization = litert_schema().QuantizationParametersT()
        quantization.scale = scale
        quantization.zeroPoint = np.zeros(len(scale), "int64")
        quantization.quantizedDimension = axis or 0
        found[number] = quantization
    return found


def _takes_integers(edit: Editor, kind: str, operator: Any, mode: str) -> bool:
    """Makes an operator take integers, if it can; returns whether."""
    version = _WEIGHTS[kind][2]
    kinds = {
        "float16": (),
        "int8-weights": ("EMBEDDING_LOOKUP",),
        "int8": _WEIGHTS,
    }
    if version is None or kind not in kinds[mode]:
        return False
    operator.opcodeIndex = edit.code(kind, version)
    if kind == "FULLY_CONNECTED":
        operator.builtinOptions.asymmetricQuantizeInputs = True
    return True


def weights_of(model: Any, smallest: int = SMALLEST) -> dict[int, set[str]]:
    """Returns which kinds of operators read each weight, by their buffers.

    Weights are finite, large, and read by products and lookups only.
    """
    schema, kinds = litert_schema(), kinds_of(model)
    readers = collections.defaultdict[int, set[str]](set)
    shapes = collections.defaultdict[int, set[tuple[int, ...]]](set)
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            weight = place_of(kind, operator)
            for place, index in enumerate(operator.inputs):
                if index >= 0:
                    own = kind if place == weight else ""
                    readers[graph.tensors[index].buffer].add(own)
        for tensor in graph.tensors:
            # Zeros of several shapes may be one constant.
            shape = () if tensor.shape is None else tensor.shape
            shapes[tensor.buffer].add(tuple(map(int, shape)))
            if tensor.type != schema.TensorType.FLOAT32:
                readers[tensor.buffer].add("")
        for index in graph.outputs:
            readers[graph.tensors[index].buffer].add("")
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
    return _WEIGHTS[kind][0] if kind in _WEIGHTS else None


def _is_weight(data: Any, smallest: int) -> bool:
    if not isinstance(data, np.ndarray) or data.size < 4 * smallest:
        return False
    values = data.view("float32")
    # Both are NaN if any number is.
    return bool(np.isfinite(values.min()) and np.isfinite(values.max()))


def _rounded(
    values: np.ndarray, axis: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns integers and scales, one for each place of the axis, if any."""
    axes = tuple(i for i in range(values.ndim) if i != axis)
    most = np.maximum(
        values.max(axis=axes, keepdims=True),
        -values.min(axis=axes, keepdims=True),
    )
    scale = np.where(most == 0, 1, most / np.float32(_MOST)).astype("float32")
    scale = np.where(scale == 0, most, scale)  # of subnormal numbers
    found = values / scale
    np.rint(found, out=found)  # without copies: tables are large
    np.clip(found, -_MOST, _MOST, out=found)
    return found.astype("int8"), scale.reshape(-1)


def look_up(model: Any) -> None:
    """Replaces GATHER of rows by EMBEDDING_LOOKUP, which can be quantized."""
    kinds, weights = kinds_of(model), weights_of(model)
    types = litert_schema().TensorType
    for graph in model.subgraphs:
        edit = Editor(model, graph)
        operators: list[Any] = []
        for operator in graph.operators:
            kind = kinds[operator.opcodeIndex]
            if kind == "GATHER" and place_of(kind, operator) == 0:
                table, ids = (graph.tensors[each] for each in operator.inputs)
                if (
                    table.buffer in weights
                    and len(table.shape) == 2
                    and ids.type in (types.INT32, types.INT64)
                    and ids.shape is not None
                    and len(ids.shape)
                ):
                    operators += _by_rows(graph, edit, operator)
                    continue
            operators.append(operator)
        graph.operators = operators


def _by_rows(graph: Any, edit: Editor, operator: Any) -> Iterator[Any]:
    """Yields operators that look ids of any shape up in a table."""
    schema = litert_schema()
    types = schema.TensorType
    table, number = operator.inputs
    (output,) = operator.outputs
    ids = graph.tensors[number]
    if ids.type == types.INT64:
        cast = schema.CastOptionsT()
        cast.inDataType, cast.outDataType = types.INT64, types.INT32
        wide = number
        number = edit.tensor(ids, "/int32", buffer=0, type=types.INT32)
        yield edit.operator("CAST", [wide], number, cast)
        ids = graph.tensors[number]
    rank, dim = len(ids.shape), int(graph.tensors[table].shape[-1])

    def integers(name: str, count: int, **changed: Any) -> int:
        return edit.tensor(
            ids, name, shape=[count], shapeSignature=None, **changed
        )

    def constant(name: str, value: int) -> int:
        buffer = edit.buffer(np.array([value], "int32"))
        return integers(name, 1, buffer=buffer)

    flat = edit.tensor(ids, "/flat", shape=[1], shapeSignature=[-1])
    yield edit.operator("RESHAPE", [number, constant("/all", -1)], flat)
    rows = edit.tensor(
        graph.tensors[output], "/rows", shape=[1, dim], shapeSignature=[-1, dim]
    )
    yield edit.operator("EMBEDDING_LOOKUP", [flat, table], rows)
    sizes, whole = integers("/sizes", rank), integers("/shape", rank + 1)
    yield edit.shape(number, sizes)
    join = schema.ConcatenationOptionsT()
    yield edit.operator(
        "CONCATENATION", [sizes, constant("/dim", dim)], whole, join
    )
    yield edit.operator("RESHAPE", [rows, whole], output)
