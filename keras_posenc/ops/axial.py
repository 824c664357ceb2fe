"""Encodings of grids: each axis has its own columns."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_posenc.ops.broadcasting import spread


def axis_width(dim: int, num_axes: int) -> int:
    """Returns the columns of each axis: even, for pairs of sine and cosine."""
    return 2 * -(-dim // (2 * num_axes))


def axis_widths(dim: int, num_axes: int) -> list[int]:
    """Returns how many columns each axis has; the last one has the rest.

    Raises:
        ValueError: The last axis would have none.
    """
    width = axis_width(dim, num_axes)
    left = dim - (num_axes - 1) * width
    if left <= 0:
        raise ValueError(
            f"A width of {dim} leaves no column for the last of {num_axes} "
            f"axes, since each of the others takes {width}. Give a multiple "
            f"of {2 * num_axes}. Received: width {dim}"
        )
    return [width] * (num_axes - 1) + [left]


def joined_axes(encodings: Sequence[Any], *, reverse: bool = False) -> Any:
    """Joins one encoding for each axis to one for each cell.

    Args:
        encodings: For each axis, `(size, width)`.
        reverse: Whether the columns of the last axis come first.

    Returns:
        `(*sizes, sum of the widths)`: cell `(i, j, ...)` holds row `i` of the
        first encoding, row `j` of the second, and so on.
    """
    sizes = [ops.shape(encoding)[0] for encoding in encodings]
    planes = []
    for axis, encoding in enumerate(encodings):
        others = [other for other in range(len(sizes)) if other != axis]
        # (size, width) -> (1, ..., size, ..., 1, width)
        plane = ops.expand_dims(encoding, others) if others else encoding
        planes.append(spread(plane, sizes))
    return ops.concatenate(planes[::-1] if reverse else planes, axis=-1)
