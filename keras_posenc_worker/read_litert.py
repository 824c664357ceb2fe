"""Reads what a LiteRT file contains."""

import collections
import mmap
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import by_value, litert_schema, unpack

_MOST = 2**31  # most bytes of a flatbuffer
# Operators that read integers and compute in floats.
_RESTORING = {"DEQUANTIZE", "EMBEDDING_LOOKUP", "GATHER"}


def read_litert(path: Path) -> dict[str, Any]:
    """Returns the contents of a LiteRT file."""
    with path.open("rb") as file:  # mapped: weights need not be in memory
        return read_content(
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        )


def read_content(content: Any) -> dict[str, Any]:
    """Returns what `read_litert` does, of a file's bytes."""
    schema = litert_schema()
    model = unpack(content)
    # Weights that a flatbuffer cannot hold come after it; buffers have their
    # sizes.
    most = _MOST + sum(buffer.size or 0 for buffer in model.buffers)
    if len(content) > most:
        raise ValueError(
            f"it has {len(content):,} bytes, and what it describes has "
            f"{most:,} at most"
        )
    ends = ((each.offset or 0) + (each.size or 0) for each in model.buffers)
    if max(ends, default=0) > len(content):
        raise EOFError("its weights end after the file")
    operator_names = by_value(schema.BuiltinOperator)
    dtype_names = by_value(schema.TensorType)
    custom = {
        index: code.customCode.decode()
        for index, code in enumerate(model.operatorCodes)
        if code.customCode
    }
    codes = [  # older files use the deprecated field
        custom.get(index)
        or operator_names[max(code.builtinCode, code.deprecatedBuiltinCode)]
        for index, code in enumerate(model.operatorCodes)
    ]
    operators = collections.Counter(
        codes[operator.opcodeIndex]
        for graph in model.subgraphs
        for operator in graph.operators
    )

    def tensors(graph: Any, maps: Any) -> dict[str, Any]:
        named = {}
        for entry in maps or []:
            tensor = graph.tensors[entry.tensorIndex]
            sizes = tensor.shapeSignature
            if sizes is None:
                sizes = () if tensor.shape is None else tensor.shape
            named[entry.name.decode()] = {
                "shape": [int(size) for size in sizes],
                "dtype": dtype_names[tensor.type].lower(),
            }
        return named

    signatures = {}
    for each in model.signatureDefs or []:
        graph = model.subgraphs[each.subgraphIndex]
        signatures[each.signatureKey.decode()] = {
            "inputs": tensors(graph, each.inputs),
            "outputs": tensors(graph, each.outputs),
        }
    # An operator that the runtime does not have may do anything.
    foreign = sorted({*custom.values()})
    return {
        "weight_bytes": sum(
            len(buffer.data)
            for buffer in model.buffers
            if buffer.data is not None
        ),
        "signatures": signatures,
        "operators": dict(operators.most_common()),
        "custom": foreign,
        "unsafe": foreign,
        "quantization": _quantization(model, codes, dtype_names),
        "has_metadata": any(
            entry.name == b"TFLITE_METADATA" for entry in model.metadata or []
        ),
    }


def _quantization(
    model: Any, codes: list[str], dtype_names: dict[int, str]
) -> str | None:
    """Returns the mode of quantization, by constants and their operators."""
    readers: dict[str, set[str]] = {}
    kinds = set()
    for graph in model.subgraphs:
        for operator in graph.operators:
            kind = codes[operator.opcodeIndex]
            kinds.add(kind)
            for index in operator.inputs:
                tensor = graph.tensors[index]
                if index >= 0 and model.buffers[tensor.buffer].data is not None:
                    readers.setdefault(dtype_names[tensor.type], set()).add(
                        kind
                    )
    if "INT4" in readers:
        return "int4"
    if "INT8" in readers:
        if "QUANTIZE" in kinds:
            return "int8-static"
        products = readers["INT8"] - _RESTORING
        is_restored = not products and "DEQUANTIZE" in readers["INT8"]
        return "int8-weights" if is_restored else "int8"
    return "float16" if "FLOAT16" in readers else None
