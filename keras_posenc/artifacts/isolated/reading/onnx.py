"""Reads what an ONNX file contains."""

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What the standard of ONNX defines computes, and does nothing else.
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def read_onnx(path: Path) -> dict[str, Any]:
    """The contents of an ONNX file."""
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
                "dtype": onnx.helper.tensor_dtype_to_np_dtype(
                    value.type.tensor_type.elem_type
                ).name,
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
    # Those of other domains are whatever somebody has made them.
    foreign = sorted(
        {node.op_type for node in nodes if node.domain not in _ONNX_DOMAINS}
    )
    return {
        "weight_bytes": sum(
            onnx.numpy_helper.to_array(each).nbytes
            for each in graph.initializer
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
    }


def _messages(message: Any, kind: type) -> Iterator[Any]:
    """Each message of a kind inside of another, wherever it is."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            is_one = hasattr(value, "ListFields")
            for each in [value] if is_one else value:
                yield from _messages(each, kind)
