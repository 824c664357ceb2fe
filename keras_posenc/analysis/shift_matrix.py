"""The linear map from one position's encoding to another's."""

import numpy as np
import numpy.typing as npt

from keras_posenc.checks import (
    check_choice,
    check_max_wavelength,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import LAYOUTS, frequencies


def shift_matrix(
    k: float,
    d_model: int,
    *,
    max_wavelength: float = 10000,
    layout: str = "interleaved",
) -> npt.NDArray[np.float64]:
    """Returns the matrix `M_k` with `PE(p + k) = M_k @ PE(p)` for every `p`.

    It rotates each pair of a sine and a cosine by the angle `k w_j`, which
    does not depend on the position: condition 4 of a good encoding.

    Args:
        k: The shift in positions; any real number.
        d_model: Width of the encoding; even, since the last sine of an odd
            width has no cosine to turn with.
        max_wavelength: As for `PositionalEncoding`.
        layout: As for `PositionalEncoding`.

    Returns:
        float64 array of shape `(d_model, d_model)`.

    Raises:
        ValueError: An odd width, or another invalid argument.

    Example:
    >>> from keras_posenc.analysis import shift_matrix
    >>> shift_matrix(1, 2).round(3).tolist()
    [[0.54, 0.841], [-0.841, 0.54]]

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5
    """
    d_model = check_positive_int("d_model", d_model)
    if d_model % 2:
        raise ValueError(
            "`d_model` must be even: the last sine of an odd width has no "
            f"cosine. Received: d_model={d_model}"
        )
    check_choice("layout", layout, LAYOUTS)
    angles = k * frequencies(
        d_model, max_wavelength=check_max_wavelength(max_wavelength)
    )
    half = np.arange(d_model // 2)
    if layout == "interleaved":
        sines, cosines = 2 * half, 2 * half + 1
    else:
        sines, cosines = half, half + d_model // 2
    matrix = np.zeros((d_model, d_model))
    matrix[sines, sines] = matrix[cosines, cosines] = np.cos(angles)
    matrix[sines, cosines] = np.sin(angles)
    matrix[cosines, sines] = -np.sin(angles)
    return matrix
