"""Learned tables: rows by position, and resizing."""

from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.plain_export import where_valid
from keras_posenc.ops.sinusoids import split_positions


def rows_at(table: Any, positions: Any, *, mask: Any = None) -> Any:
    """Returns rows of a table by position; NaN for a token outside it.

    A runtime that reads beyond a table fails, wraps around, or returns whatever
    memory is there. Here nothing is read beyond the table, and a token without
    a row cannot be mistaken for one with a row: a masked one takes the nearest
    row, any other one NaN.
    """
    length = table.shape[0]
    whole, _, valid = split_positions(positions)
    row = ops.clip(whole, 0, length - 1)
    valid = ops.logical_and(valid, ops.equal(row, whole))
    rows = ops.take(table, row, axis=0)
    if mask is not None:
        valid = ops.logical_or(valid, ops.logical_not(mask))
    valid = ops.expand_dims(valid, -1)
    return where_valid(valid, rows, nan=ops.cast(float("nan"), rows.dtype))


def resized_table(table: np.ndarray, length: int) -> np.ndarray:
    """Resizes `(rows, width)` to `length` rows by linear interpolation.

    The first and the last row stay, so positions near the ends of a sequence
    keep what they learned, and the rest is spread evenly. float64.
    """
    rows = table.shape[0]
    place = np.linspace(0, rows - 1, length)
    below = np.minimum(place.astype("int64"), max(rows - 2, 0))
    share = (place - below)[:, np.newaxis]
    wide = table.astype("float64")
    above = np.minimum(below + 1, rows - 1)
    return wide[below] * (1 - share) + wide[above] * share
