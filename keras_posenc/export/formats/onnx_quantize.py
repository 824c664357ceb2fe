"""Quantization of ONNX files by ONNX Runtime's own quantizer."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.formats.onnx_operators import nodes
from keras_posenc.publish import working_folder

# Operators with weights that are quantized, and which input these are. Products
# of two activations, as in attention, stay in float32. So do convolutions: ONNX
# Runtime computes them in integers only if their outputs are rounded too.
_WEIGHTS = {"Gather": 0, "MatMul": 1}
# ONNX Runtime moves DequantizeLinear after these, and crashes (1.32) where an
# inner graph reads what it moves.
_MOVING = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
_SMALLEST = 1024  # numbers of a weight; smaller ones stay in float32
# The quantizer warns of a model without this mark.
_PREPARED = "onnx.quant.pre_process", "onnxruntime.quant"


def check_mode(quantization: Any) -> None:
    """Raises `ValueError` for a mode that ONNX files do not have."""
    if quantization in (None, "int8"):
        return
    reason = ""
    if quantization == "int8-weights":
        reason = (
            ". ONNX Runtime quantizes weights alone only by an operator of its "
            "own, MatMulNBits, which the ONNX standard lacks: take 'int8', or "
            "export_litert"
        )
    raise ValueError(
        "`quantization` of an ONNX file must be 'int8' or None. Received: "
        f"quantization={quantization!r}{reason}"
    )


def quantize(model: Any, weights: Iterable[str]) -> None:
    """Quantizes the weights of a model, in place.

    Each column of a kernel has a scale. Its integers have 7 bits: x86
    processors without VNNI add two products of 8 bits in 16 bits, and of
    larger ones the sums would not fit there. Tables have 8 bits and one scale.
    Constants that are no weights, such as an encoding, are never quantized.
    """
    graph = model.graph
    chosen = list(_chosen(graph, {*_fold(graph, weights)}))
    if chosen:
        _run(model, chosen)


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


def _fold(graph: Any, weights: Iterable[str]) -> Iterator[str]:
    """Lays weights out once instead of at each run; yields their names.

    The quantizer takes a kernel only as a constant, and many are reshaped
    first. A weight with one reader keeps its name.
    """
    from onnx import numpy_helper

    constants = {each.name: each for each in graph.initializer}
    known = {*weights} & {*constants}
    yield from known
    taken = {*constants, *(x for node in nodes(graph) for x in node.input)}
    results = {each.name for each in graph.output}
    for node in list(graph.node):
        source = node.input[0] if node.input else ""
        if (
            source not in known
            or any(name not in constants for name in node.input)
            or not results.isdisjoint(node.output)
        ):
            continue
        value = numpy_helper.to_array(constants[source])
        if node.op_type == "Reshape":
            sizes = numpy_helper.to_array(constants[node.input[1]]).tolist()
            value = value.reshape(
                [size or value.shape[i] for i, size in enumerate(sizes)]
            )
        elif node.op_type == "Transpose":
            order = [list(x.ints) for x in node.attribute if x.name == "perm"]
            value = value.transpose(*order)
        else:
            continue
        folded = numpy_helper.from_array(np.ascontiguousarray(value))
        # Counted now: what read a folded node reads the weight.
        readers = [x for each in nodes(graph) for x in each.input]
        if readers.count(source) == 1:
            folded.name = source
            constants[source].CopyFrom(folded)
            name = source
        else:
            name = f"{source}/{node.op_type.lower()}"
            while name in taken:
                name += "_"
            folded.name = name
            graph.initializer.append(folded)
            constants[name] = graph.initializer[-1]
            yield name
        known.add(name)
        taken.add(name)
        (old,) = node.output
        graph.node.remove(node)
        for reader in nodes(graph):
            reader.input[:] = [name if x == old else x for x in reader.input]


def _chosen(graph: Any, weights: set[str]) -> Iterator[Any]:
    """Yields the nodes whose large weights are quantized."""
    from onnx import TensorProto, numpy_helper

    constants = {each.name: each for each in graph.initializer}
    for node in graph.node:
        place = _WEIGHTS.get(node.op_type)
        name = "" if place is None else node.input[place]
        if (
            name not in weights
            or (weight := constants[name]).data_type != TensorProto.FLOAT
            or math.prod(weight.dims) < _SMALLEST
        ):
            continue
        is_of_rows = not any(x.i for x in node.attribute if x.name == "axis")
        fits = {
            "Gather": is_of_rows and not _is_read_within(graph, node),
            "MatMul": len(weight.dims) == 2,
        }
        values = numpy_helper.to_array(weight)
        if fits[node.op_type] and np.all(np.isfinite(values)):
            yield node


def _is_read_within(graph: Any, lookup: Any) -> bool:
    """Returns whether an inner graph, as a loop's, reads looked up rows."""
    found = {*lookup.output}
    for node in graph.node:
        if node.op_type in _MOVING and node.input[0] in found:
            found.update(node.output)
    outer = len(graph.node)
    inner = itertools.islice(nodes(graph), outer, None)
    return any(not found.isdisjoint(node.input) for node in inner)


def _run(model: Any, chosen: Sequence[Any]) -> None:
    """Runs the quantizer on some nodes of a model, in place."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

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
            nodes_to_quantize=[each.name for each in chosen],
        )
        model.graph.CopyFrom(onnx.load(rounded).graph)
