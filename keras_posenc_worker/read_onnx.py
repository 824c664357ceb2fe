"""Reads what an ONNX file contains."""

import collections
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Domains of the ONNX standard, whose operators only compute.
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
# Operators that read rounded weights, and which input these are.
_ROUNDED = {"DequantizeLinear": 0, "MatMulInteger": 1}


def read_onnx(path: Path) -> dict[str, Any]:
    """Returns the contents of an ONNX file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in _messages(model, onnx.TensorProto):
        if (
            tensor.data_location == onnx.TensorProto.EXTERNAL
            or tensor.external_data
        ):
            raise ValueError(
                f"the numbers of its tensor {tensor.name!r} are in another file"
            )
    graph = model.graph
    onnx.checker.check_model(model)

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
            math.prod(x.dims) * _dtype(x.data_type).itemsize
            for x in graph.initializer
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
