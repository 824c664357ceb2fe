"""Tables of floats that no conversion rounds.

They are stored as integers with the same bits, which converters to int8 and
float16 do not change, except for ONNX: it has no operator that reads bits as
floats before opset 26.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.keras_internals import is_exported_to


def kept_table(values: np.ndarray) -> np.ndarray:
    """Returns a table as the graph stores it: float32 as bits if possible."""
    if values.dtype != np.float32 or is_exported_to("onnx"):
        return values
    return values.view("int32")


def rows_of(table: Any, rows: Any) -> Any:
    """Returns rows, as floats, of a table that `kept_table` made."""
    gathered = ops.take(table, rows, axis=0)
    is_of_bits = keras.backend.standardize_dtype(table.dtype) == "int32"
    return ops.view(gathered, "float32") if is_of_bits else gathered
