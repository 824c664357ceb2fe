"""LiteRT files as objects, read and written without copies of their weights."""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc_worker.formats import litert_schema, pack, unpack

_LARGE = 1024  # bytes of a buffer that is written after the graph
_ALIGNMENT = 16  # of a buffer, as the format's schema demands
_MOST = 2**31 - 1  # bytes of a flatbuffer
_DATA = 4  # place of the field `data` in the table of a buffer's fields


def read(content: Any) -> Any:
    """Returns a file's bytes as an object, with views of each constant once."""
    model = unpack(content)
    whole = np.frombuffer(content, "uint8")
    first: dict[bytes, int] = {}
    same: dict[int, int] = {}
    for number, buffer in enumerate(model.buffers):
        if buffer.offset > 1:
            buffer.data = whole[buffer.offset : buffer.offset + buffer.size]
            buffer.offset = buffer.size = 0
        if isinstance(buffer.data, np.ndarray) and buffer.data.size:
            found = _digest(buffer.data)
            same[number] = first.setdefault(found, number)
            if same[number] != number:
                buffer.data = None
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = same.get(tensor.buffer, tensor.buffer)
    for entry in model.metadata or []:
        entry.buffer = same.get(entry.buffer, entry.buffer)
    return model


def write(model: Any, path: Path) -> None:
    """Packs the graph alone, and writes its weights after it, uncopied."""
    large = {
        number: buffer.data
        for number, buffer in enumerate(model.buffers)
        if buffer.data is not None and len(buffer.data) >= _LARGE
    }
    for number in large:
        model.buffers[number].data = np.zeros(1, "uint8")
    graph = bytearray(pack(model))
    for number, data in large.items():
        model.buffers[number].data = data
    starts = _refer(graph, large)
    with path.open("wb") as file:
        file.write(graph)
        for number, data in large.items():
            # The array begins with its length, and is padded before that.
            file.write(bytes(starts[number] - 4 - file.tell()))
            file.write(struct.pack("<I", len(data)))
            file.write(np.ascontiguousarray(data).data)


def _refer(graph: bytearray, large: Mapping[int, Any]) -> dict[int, int]:
    """Makes a packed graph refer to arrays after it; returns their places."""
    root = litert_schema().Model.GetRootAs(graph, 0)
    end, starts = len(graph), {}
    for number, data in large.items():
        starts[number] = -(-(end + 4) // _ALIGNMENT) * _ALIGNMENT
        end = starts[number] + len(data)
        if end > _MOST:
            continue
        table = root.Buffers(number)._tab
        place = table.Pos + table.Offset(_DATA)
        struct.pack_into("<I", graph, place, starts[number] - 4 - place)
    if end > _MOST:
        raise ExportError(
            f"A LiteRT file has at most {units.size(_MOST)}, and this one "
            f"would have {units.size(end)}. Give `quantization='int8'`, "
            "which divides its weights by 4"
        )
    return starts


def variables_in(
    model: Any, variables: Iterable[keras.Variable]
) -> dict[int, keras.Variable]:
    """Returns the variables that a file has bit for bit, by their buffers."""
    buffers = {
        number: buffer.data
        for number, buffer in enumerate(model.buffers)
        if buffer.data is not None
    }
    sizes, found = {*map(len, buffers.values())}, {}
    for variable in variables:
        value = keras.ops.convert_to_numpy(variable)
        if value.ndim > 1 and value.nbytes in sizes:
            for laid in (value, *(np.moveaxis(value, n, 0) for n in (-1, -2))):
                found[_digest(laid)] = value.nbytes, variable
    sizes = {size for size, _ in found.values()}
    return {
        number: found[name][1]
        for number, data in buffers.items()
        if len(data) in sizes and (name := _digest(data)) in found
    }


def _digest(values: Any) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()
