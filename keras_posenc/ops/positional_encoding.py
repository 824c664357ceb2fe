"""The sinusoidal encoding as in tutorials, and as an exact table."""

from typing import Any

import keras
import ml_dtypes
import numpy as np
from keras import ops

from keras_posenc.checks import (
    check_choice,
    check_max_wavelength,
    check_positive_int,
)

LAYOUTS = ("interleaved", "halves")


def get_angles(
    position: Any, i: Any, d_model: Any, *, max_wavelength: float = 10000
) -> Any:
    """Computes angles of the sinusoidal encoding in float32, as tutorials do.

    >>> import keras_posenc as kp
    >>> angles = kp.get_angles([[0], [1]], [[0, 1, 2, 3]], 4)
    >>> [[float(angle) for angle in row] for row in angles][0]
    [0.0, 0.0, 0.0, 0.0]
    >>> tuple(angles.shape)
    (2, 4)

    `angle = position / max_wavelength ** (2 * (i // 2) / d_model)`: columns
    `2 j` and `2 j + 1` share one frequency. A float32 angle is off by about
    `position * 2 ** -24` radians, which is why `PositionalEncoding` does not
    compute angles at all. This function is for reading and comparing.

    Args:
        position: Positions; a tensor that broadcasts against `i`, usually of
            shape `(seq, 1)`.
        i: Column indices, usually of shape `(1, d_model)`.
        d_model: Width of the encoding; a scalar.
        max_wavelength: The base of the geometric progression of wavelengths.

    Returns:
        Angles in radians, float32, of the broadcast shape.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """
    position = ops.cast(position, "float32")
    pair = ops.cast(ops.floor_divide(i, 2), "float32")
    d_model = ops.cast(d_model, "float32")
    angle_rates = 1 / ops.power(
        ops.cast(max_wavelength, "float32"), 2 * pair / d_model
    )
    return position * angle_rates


def positional_encoding(
    position: int,
    d_model: int,
    *,
    max_wavelength: float = 10000,
    layout: str = "interleaved",
    dtype: Any = None,
) -> Any:
    """Returns the sinusoidal encoding of the positions `0 ... position - 1`.

    >>> import keras_posenc as kp
    >>> encoding = kp.positional_encoding(50, 512)
    >>> tuple(encoding.shape)
    (1, 50, 512)
    >>> [float(x) for x in encoding[0, 0, :4]]
    [0.0, 1.0, 0.0, 1.0]

    Computed in float64 and rounded once to `dtype`.

    Args:
        position: Number of positions, an integer above 0.
        d_model: Width of the encoding, an integer above 0; may be odd.
        max_wavelength: The longest wavelength is `2 pi` times nearly this
            many positions. At least 1.
        layout: `"interleaved"` (sine in even columns, cosine in odd ones: the
            paper) or `"halves"` (all the sines, then all the cosines).
        dtype: A float dtype; `keras.config.floatx()` by default.

    Returns:
        A tensor of shape `(1, position, d_model)`.

    Raises:
        ValueError: An argument outside the ranges above.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """
    position = check_positive_int("position", position)
    d_model = check_positive_int("d_model", d_model)
    max_wavelength = check_max_wavelength(max_wavelength)
    check_choice("layout", layout, LAYOUTS)
    dtype = keras.backend.standardize_dtype(dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"`dtype` must be a float dtype. Received: dtype={dtype!r}"
        )
    angles = np.arange(position)[:, np.newaxis] * frequencies(
        d_model, max_wavelength=max_wavelength
    )
    sine, cosine = np.sin(angles), np.cos(angles)[:, : d_model // 2]
    encoding = np.empty((1, position, d_model))
    if layout == "halves":
        encoding[0] = np.concatenate([sine, cosine], axis=-1)
    else:
        encoding[0, :, 0::2] = sine
        encoding[0, :, 1::2] = cosine
    return ops.convert_to_tensor(_round_once(encoding, dtype), dtype=dtype)


def frequencies(d_model: int, *, max_wavelength: float) -> np.ndarray:
    """Returns radians per position of each pair: float64, `(pairs,)`."""
    pairs = np.arange((d_model + 1) // 2)
    return max_wavelength ** (-2.0 * pairs / d_model)


def _round_once(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype != "bfloat16":
        return values.astype(dtype)
    # A cast to bfloat16 goes through float32 and so rounds twice. Rounded to
    # bfloat16's 8 bits in float64 first, both casts are exact.
    mantissa, exponent = np.frexp(values)
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)
    return rounded.astype(ml_dtypes.bfloat16)
