"""Scalar encodings: a position itself, or divided by the length."""

from typing import Any

from keras import ops

from keras_posenc.ops.plain_export import where_valid
from keras_posenc.ops.sinusoids import split_positions


def index_encoding(
    positions: Any, *, lengths: Any = None, dtype: str = "float32"
) -> Any:
    """Returns positions as floats, divided by the lengths if there are any.

    Args:
        positions: Integers or floats of any shape.
        lengths: Integers that broadcast to the positions. A length of 0
            counts as 1.
            counts as 1.
        dtype: `"float32"` or `"float64"`, the dtype of the result.

    Returns:
        Tensor of shape `(*positions.shape, 1)`. A position that is NaN, or
        whose magnitude exceeds 2**24, gives NaN.
    """
    whole, fraction, valid = split_positions(positions, exact=dtype)
    index = ops.cast(whole, dtype)
    if fraction is not None:
        index = index + ops.cast(fraction, dtype)
    if lengths is not None:
        index = index / ops.cast(ops.maximum(lengths, 1), dtype)
    index = where_valid(valid, index, nan=ops.full_like(index, float("nan")))
    return ops.expand_dims(index, -1)
