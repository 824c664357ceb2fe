"""Reads what an ONNX file contains."""

import collections
import math
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc_worker.wire import fields, head

# Domains of the ONNX standard, whose operators only compute.
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
# Operators that read rounded weights, and which input these are.
_ROUNDED = {"DequantizeLinear": 0, "MatMulInteger": 1}
_LARGE = 2**16  # bytes of a weight that is skipped


def read_onnx(path: Path) -> dict[str, Any]:
    """Returns the contents of an ONNX file."""
    import onnx

    model, left_out = _without_weights(path)
    for tensor in _messages(model, onnx.TensorProto):
        if (
            tensor.data_location == onnx.TensorProto.EXTERNAL
            or tensor.external_data
        ):
            raise ValueError(
                f"the numbers of its tensor {tensor.name!r} are in another file"
            )
    onnx.checker.check_model(model)
    graph = model.graph

    def tensors(values: Any) -> dict[str, Any]:
        return {
            value.name: {
                "shape": [
                    size.dim_value if size.HasField("dim_value") else -1
                    for size in value.type.tensor_type.shape.dim
                ]
                if value.type.tensor_type.HasField("shape")
                else None,
                "dtype": _dtype(value.type.tensor_type.elem_type).name,
            }
            for value in values
        }

    own = {(each.domain, each.name) for each in model.functions}
    nodes = [
        node
        for node in _messages(model, onnx.NodeProto)
        if (node.domain, node.op_type) not in own
    ]
    operators = collections.Counter(node.op_type for node in nodes)
    # Operators of other domains may do anything.
    foreign = sorted(
        {node.op_type for node in nodes if node.domain not in _ONNX_DOMAINS}
    )
    return {
        "weight_bytes": sum(
            size or onnx.numpy_helper.to_array(each).nbytes
            for each, size in zip(graph.initializer, left_out, strict=True)
        ),
        "signatures": {
            graph.name: {
                "inputs": tensors(graph.input),
                "outputs": tensors(graph.output),
            }
        },
        "operators": dict(operators.most_common()),
        "custom": foreign,
        "unsafe": foreign,
        "quantization": _quantization(graph),
    }


def _quantization(graph: Any) -> str | None:
    """Returns the mode of quantization, by constants and their operators."""
    import onnx

    eight_bits = onnx.TensorProto.INT8, onnx.TensorProto.UINT8
    rounded = {x.name for x in graph.initializer if x.data_type in eight_bits}
    for node in graph.node:
        if node.op_type == "Gather" and rounded.intersection(node.input[:1]):
            rounded.update(node.output)  # rows of a table
        place = _ROUNDED.get(node.op_type)
        if place is not None and rounded.intersection(
            node.input[place : place + 1]
        ):
            return "int8"
    return None


def _without_weights(path: Path) -> tuple[Any, list[int]]:
    """Reads a model without the numbers of its large weights.

    To parse and check them would need their memory three times.

    Returns:
        The model, and for each initializer of its graph how many bytes it
        lacks; those that lack some have shape (0,).
    """
    import onnx

    numbers = (
        onnx.ModelProto.GRAPH_FIELD_NUMBER,
        onnx.GraphProto.INITIALIZER_FIELD_NUMBER,
        onnx.TensorProto.RAW_DATA_FIELD_NUMBER,
    )
    sizes: list[int] = []

    def light(numbers: Sequence[int], begin: int, end: int) -> bytes:
        parts = []
        for number, start, value, stop in fields(content, begin, end):
            if number != numbers[0]:
                parts.append(content[start:stop])
                continue
            if len(numbers) == 2:
                sizes.append(0)
            if len(numbers) > 1:
                part = light(numbers[1:], value, stop)
            else:
                size = stop - value
                sizes[-1] = size if size > _LARGE else 0
                part = b"" if size > _LARGE else content[value:stop]
            parts.append(head(number, len(part)) + part)
        return b"".join(parts)

    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = onnx.ModelProto.FromString(light(numbers, 0, len(content)))
    for each, size in zip(model.graph.initializer, sizes, strict=True):
        dtype = _dtype(each.data_type)
        if size and (
            min(each.dims, default=0) < 0
            or dtype.hasobject  # strings, which differ in size
            or size != dtype.itemsize * math.prod(each.dims)
        ):
            # Packed numbers or a damaged file: let onnx read it whole.
            model = onnx.load(path, load_external_data=False)
            return model, [0] * len(sizes)
        if size:
            each.ClearField("raw_data")
            each.dims[:] = [0]  # or it would not be a tensor
    return model, sizes


def _dtype(number: int) -> Any:
    """Returns the dtype of a number; raises `ValueError` if it has none."""
    import onnx

    try:
        return onnx.helper.tensor_dtype_to_np_dtype(number)
    except KeyError as error:
        raise ValueError(
            f"it has a tensor of no known type: {number}"
        ) from error


def _messages(message: Any, kind: type) -> Iterator[Any]:
    """Yields each message of a kind inside another, at any depth."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            is_one = hasattr(value, "ListFields")
            for each in [value] if is_one else value:
                yield from _messages(each, kind)
