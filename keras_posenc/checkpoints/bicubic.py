"""Positions of a grid of patches, for a grid of another size."""

import numpy as np

# How far a point overshoots its neighbours; PyTorch's choice, and OpenCV's.
_SHARPNESS = -0.75


def resized(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """A grid of vectors, by cubic convolution where the size is another one.

    As PyTorch's `interpolate` does with `mode="bicubic"`: without corners that
    stay where they are, and without a filter where the grid becomes smaller.

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
    """What each new place takes of each old one, `(after, before)`."""
    places = (np.arange(after) + 0.5) * before / after - 0.5
    first = np.floor(places).astype(int)
    weights = np.zeros((after, before))
    for step in range(-1, 3):  # the four that are next to a place
        neighbour = first + step
        share = _kernel(np.abs(places - neighbour))
        at = np.clip(neighbour, 0, before - 1)  # the edge goes on and on
        np.add.at(weights, (np.arange(after), at), share)
    return weights


def _kernel(distance: np.ndarray) -> np.ndarray:
    a, x = _SHARPNESS, distance
    near = ((a + 2) * x - (a + 3)) * x**2 + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far)
