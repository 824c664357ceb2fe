"""Other operators for exports to ONNX and OpenVINO, above all Keras's own.

Elsewhere tables of floats are stored as integers with the same bits, which
converters to int8 and float16 do not change, and NaN is set by a condition.
ONNX has no operator that reads bits as floats before opset 26, and OpenVINO has
none. Keras's converter turns a condition into two products, which spread NaN,
and rounds quotients of integers towards 0.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.keras_internals import is_exported_by_keras, is_exported_to


def kept_table(values: np.ndarray) -> np.ndarray:
    """Returns a table as the graph stores it: float32 as bits if possible."""
    if values.dtype != np.float32 or is_exported_to("onnx"):
        return values
    return values if is_exported_by_keras() else values.view("int32")


def rows_of(table: Any, rows: Any) -> Any:
    """Returns rows, as floats, of a table that `kept_table` made."""
    gathered = ops.take(table, rows, axis=0)
    is_of_bits = keras.backend.standardize_dtype(table.dtype) == "int32"
    return ops.view(gathered, "float32") if is_of_bits else gathered


def where_valid(valid: Any, x: Any, *, nan: Any) -> Any:
    """Returns `x`, with NaN, in its dtype, where it is not valid."""
    if is_exported_by_keras():
        added = ops.convert_to_tensor(np.array([np.nan, 0]))
        row = ops.cast(valid, "int32")
        return x + ops.take(ops.cast(added, x.dtype), row, axis=0)
    return ops.where(valid, x, nan)


def mod(x: Any, divisor: int) -> Any:
    """Returns remainders of integers, at least 0, also of negative ones."""
    rest = ops.mod(x, divisor)
    if is_exported_by_keras():
        rest = ops.mod(rest + divisor, divisor)
    return rest


def floor_divide(x: Any, divisor: int) -> Any:
    """Returns quotients of integers, rounded down, also of negative ones."""
    if is_exported_by_keras():
        x = x - mod(x, divisor)
    return ops.floor_divide(x, divisor)
