"""What Keras's own export to ONNX and OpenVINO needs otherwise in a graph.

Elsewhere tables of floats are kept as integers of the same bits, which
converters to int8 and float16 leave alone, and NaN is chosen by a condition.
ONNX has no operator that reads bits as floats before opset 26, OpenVINO none;
and Keras's converter makes of a choice two products, by which NaN spreads, and
rounds quotients of integers towards 0.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.keras_internals import is_exported_by_keras


def kept_table(values: np.ndarray) -> np.ndarray:
    """A table as a graph is to hold it: float32 as bits, if it can."""
    if values.dtype == np.float32 and not is_exported_by_keras():
        return values.view("int32")
    return values


def rows_of(table: Any, rows: Any) -> Any:
    """Rows of a table that `kept_table` made, as floats."""
    gathered = ops.take(table, rows, axis=0)
    is_of_bits = keras.backend.standardize_dtype(table.dtype) == "int32"
    return ops.view(gathered, "float32") if is_of_bits else gathered


def where_valid(valid: Any, x: Any, *, nan: Any) -> Any:
    """`x`, and NaN where it is not valid.

    Args:
        valid: Bool, broadcasts to `x`.
        x: Floats.
        nan: NaN, in their dtype, of any shape that broadcasts.
    """
    if is_exported_by_keras():
        added = ops.convert_to_tensor(np.array([np.nan, 0]))
        row = ops.cast(valid, "int32")
        return x + ops.take(ops.cast(added, x.dtype), row, axis=0)
    return ops.where(valid, x, nan)


def mod(x: Any, divisor: int) -> Any:
    """What is left of integers, from 0 on, also of negative ones."""
    rest = ops.mod(x, divisor)
    if is_exported_by_keras():
        rest = ops.mod(rest + divisor, divisor)
    return rest


def floor_divide(x: Any, divisor: int) -> Any:
    """Quotients of integers, rounded down, also of negative ones."""
    if is_exported_by_keras():
        x = x - mod(x, divisor)
    return ops.floor_divide(x, divisor)
