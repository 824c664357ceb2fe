"""ONNX files, written without a copy of the weights in memory."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.ground import units
from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.artifacts.isolated.reading.wire import head

_MOST = 2**31 - 2**10  # bytes of a message that its readers take, and its head


def write_model(model: Any, values: Mapping[str, Any], path: Path) -> None:
    """Writes a model, and behind it the values of what has none.

    In protocol buffers a message is its fields, one after the other, and those
    of one number keep their order: weights can go to the file one by one. A
    message of all would hold them once more, and its bytes once more.

    Args:
        model: A `ModelProto`; its graph loses those initializers.
        values: The values of initializers that have only name, shape and
            dtype, by their names: variables or arrays.
        path: The file.

    Raises:
        ExportError: It is more than a file can hold; nothing is written.
    """
    import onnx

    graph = model.graph
    tensors = []
    for each in [each for each in graph.initializer if each.name in values]:
        value = values[each.name]
        size = math.prod(value.shape) * np.dtype(value.dtype).itemsize
        start = each.SerializeToString() + head(
            onnx.TensorProto.RAW_DATA_FIELD_NUMBER, size
        )
        number = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
        start = head(number, len(start) + size) + start
        tensors.append((start, size, value))
        graph.initializer.remove(each)
    rest = graph.SerializeToString()
    whole = len(rest) + sum(len(start) + size for start, size, _ in tensors)
    around = type(model)()
    around.CopyFrom(model)
    around.ClearField("graph")
    outside = around.SerializeToString()
    # Besides the weights, of which `check_size` knows, a graph has constants.
    if len(outside) + whole > _MOST:
        raise ExportError(
            f"The model makes an ONNX file of {units.size(whole)}, and one "
            f"holds {units.size(_MOST)} at most: use export_saved_model"
        )
    with path.open("wb") as file:
        file.write(outside)
        file.write(head(onnx.ModelProto.GRAPH_FIELD_NUMBER, whole))
        file.write(rest)
        for start, _, value in tensors:
            file.write(start)
            array = np.ascontiguousarray(array_of(value))
            file.write(array.reshape(-1).view("uint8").data)


def array_of(value: Any) -> np.ndarray:
    """The numbers of a variable, or of what is an array."""
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(keras.ops.convert_to_tensor(value))
