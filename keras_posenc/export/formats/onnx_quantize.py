"""Quantization of ONNX files by ONNX Runtime's own quantizer."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from keras_posenc.export.formats.onnx_operators import graphs, nodes
from keras_posenc.publish import working_folder

# Operators with weights that are quantized, and which input these are. Products
# of two activations, as in attention, stay in float32. So do convolutions: ONNX
# Runtime computes them in integers only if their outputs are rounded too.
_WEIGHTS = {"Gather": 0, "MatMul": 1}
_SMALLEST = 1024  # numbers of a weight; smaller ones stay in float32
# The quantizer warns of a model without this mark.
_PREPARED = "onnx.quant.pre_process", "onnxruntime.quant"


def check_mode(quantization: Any) -> None:
    """Raises `ValueError` for a mode that ONNX files do not have."""
    if quantization not in (None, "int8"):
        raise ValueError(
            "`quantization` of an ONNX file must be 'int8' or None. Received: "
            f"quantization={quantization!r}"
        )


def quantize(model: Any, weights: Iterable[str]) -> bool:
    """Quantizes the weights of a model, in place; returns whether it has any.

    Each column of a kernel has a scale, and 7 bits: x86 processors without VNNI
    add two products in 16 bits. Tables have 8 bits and one scale.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = model.graph
    known = _folded(graph, weights)
    # ONNX Runtime (1.32) crashes where a loop reads rows of a quantized table.
    has_loops = len([*graphs(graph)]) > 1

    def is_quantized(node: Any) -> bool:
        place = _WEIGHTS.get(node.op_type)
        weight = None if place is None else known.get(node.input[place])
        if weight is None or weight.data_type != onnx.TensorProto.FLOAT:
            return False
        is_of_rows = not any(x.i for x in node.attribute if x.name == "axis")
        fits = {
            "Gather": is_of_rows and not has_loops,
            "MatMul": len(weight.dims) == 2,
        }
        is_large = math.prod(weight.dims) >= _SMALLEST
        return (
            fits[node.op_type]
            and is_large
            and bool(np.isfinite(onnx.numpy_helper.to_array(weight)).all())
        )

    chosen = [node.name for node in graph.node if is_quantized(node)]
    if not chosen:
        return False
    onnx.helper.set_model_props(model, dict([_PREPARED]))
    with working_folder() as folder:
        path, rounded = (folder / f"{x}.onnx" for x in ("model", "rounded"))
        onnx.save(model, path)
        quantize_dynamic(
            path,
            rounded,
            op_types_to_quantize=[*_WEIGHTS],
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=chosen,
        )
        model.graph.CopyFrom(onnx.load(rounded).graph)
    return True


def in_float32(graph: Any, paths: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Returns the paths of large matrices that a file has in float32."""
    from onnx import TensorProto

    floats = {
        each.name
        for each in graph.initializer
        if each.data_type == TensorProto.FLOAT
    }
    return [
        path
        for path, shape in paths.items()
        if len(shape) > 1 and math.prod(shape) >= _SMALLEST and path in floats
    ]


def _folded(graph: Any, weights: Iterable[str]) -> dict[str, Any]:
    """Lays weights out once, as the quantizer needs; returns them by name."""
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    constants = {each.name: each for each in graph.initializer}
    sources = {name: name for name in weights if name in constants}
    results = {x.name for each in graphs(graph) for x in each.output}
    for node in list(graph.node):
        if (
            node.op_type not in ("Reshape", "Transpose")
            or node.input[0] not in sources
            or not {*node.input} <= {*constants}
            or not results.isdisjoint(node.output)
        ):
            continue
        given = {x: numpy_helper.to_array(constants[x]) for x in node.input}
        (value,) = ReferenceEvaluator(node).run(None, given)
        (name,) = node.output
        folded = numpy_helper.from_array(np.ascontiguousarray(value), name)
        graph.initializer.append(folded)
        constants[name] = graph.initializer[-1]
        sources[name] = sources[node.input[0]]
        graph.node.remove(node)
    read = results.union(*(node.input for node in nodes(graph)))
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in read:
            del graph.initializer[place]
    last = {path: name for name, path in sources.items() if name in read}
    renamed = {x: path for path, x in last.items() if path not in read}
    for node in nodes(graph):
        node.input[:] = [renamed.get(x, x) for x in node.input]
    for each in graph.initializer:
        each.name = renamed.get(each.name, each.name)
    return {x.name: x for x in graph.initializer if x.name in sources}
