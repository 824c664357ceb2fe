"""Bicubic interpolation of the position embeddings of a grid of patches."""

import numpy as np

# Keys's parameter, as in PyTorch and OpenCV: how far values overshoot.
_SHARPNESS = -0.75


def resized(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns a grid of vectors resized by cubic convolution.

    The same as PyTorch's `interpolate` with `mode="bicubic"`,
    `align_corners=False` and `antialias=False`.

    Args:
        grid: `(rows, columns, dim)`.
        height: How many rows to make.
        width: How many columns to make.

    References:
        - [Keys, 1981](https://doi.org/10.1109/TASSP.1981.1163711)
    """
    rows, columns, _ = grid.shape
    if (rows, columns) == (height, width):
        return grid
    return np.einsum(
        "hr,wc,rcd->hwd",
        _weights(rows, height),
        _weights(columns, width),
        grid.astype("float64"),
        optimize=True,
    ).astype(grid.dtype)


def _weights(before: int, after: int) -> np.ndarray:
    """Returns the weight of each old place for each new, `(after, before)`."""
    places = (np.arange(after) + 0.5) * before / after - 0.5
    first = np.floor(places).astype(int)
    weights = np.zeros((after, before))
    for step in range(-1, 3):  # the four that are next to a place
        neighbour = first + step
        share = _kernel(np.abs(places - neighbour))
        at = np.clip(neighbour, 0, before - 1)  # repeats the edge
        np.add.at(weights, (np.arange(after), at), share)
    return weights


def _kernel(distance: np.ndarray) -> np.ndarray:
    a, x = _SHARPNESS, distance
    near = ((a + 2) * x - (a + 3)) * x**2 + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far)
