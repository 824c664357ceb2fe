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
    codes = [
        (
            code.customCode.decode()
            if code.customCode
            # Older files use the deprecated field.
            else operator_names[
                max(code.builtinCode, code.deprecatedBuiltinCode)
            ]
        )
        for code in model.operatorCodes
    ]
    operators = collections.Counter(
        codes[operator.opcodeIndex]
        for graph in model.subgraphs
        for operator in graph.operators
    )

    custom = sorted(
        {
            name
            for name, code in zip(codes, model.operatorCodes, strict=True)
            if code.customCode
        }
    )

    def tensors(graph: Any, maps: Any) -> dict[str, Any]:
        named = {}
        for entry in maps or []:
            tensor = graph.tensors[entry.tensorIndex]
            shape = (
                tensor.shape
                if tensor.shapeSignature is None
                else tensor.shapeSignature
            )
            named[entry.name.decode()] = {
                "shape": [
                    int(size) for size in ([] if shape is None else shape)
                ],
                "dtype": dtype_names[tensor.type].lower(),
            }
        return named

    return {
        "weight_bytes": sum(
            len(buffer.data)
            for buffer in model.buffers
            if buffer.data is not None
        ),
        "signatures": {
            signature.signatureKey.decode(): {
                "inputs": tensors(
                    model.subgraphs[signature.subgraphIndex], signature.inputs
                ),
                "outputs": tensors(
                    model.subgraphs[signature.subgraphIndex], signature.outputs
                ),
            }
            for signature in model.signatureDefs or []
        },
        "operators": dict(operators.most_common()),
        # An operator that the runtime does not have may do anything.
        "custom": custom,
        "unsafe": custom,
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
