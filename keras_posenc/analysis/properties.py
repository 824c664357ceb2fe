"""The conditions of a good positional encoding, as numbers."""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_posenc.analysis.vectors import encoding_vectors, score_matrix
from keras_posenc.checks import check_positive_int
from keras_posenc.positional.attention_position import AttentionPosition


@dataclasses.dataclass(frozen=True)
class Properties:
    """Measurements of an encoding of positions 0 ... length - 1.

    The vector of a position is its encoding; for positions inside attention,
    it is the row of scores that the position gives all others, over all heads.
    Spreads are the largest minus the smallest, relative to the mean.

    Attributes:
        smallest_distance: Between the vectors of any two positions: 0 where
            two positions look the same (condition 1, uniqueness).
        neighbour_distance: Mean distance of neighbours' vectors.
        neighbour_spread: Spread of these distances (condition 3: equal steps
            are equally far apart).
        norm: Mean norm of the vectors.
        norm_spread: Spread of the norms (bounded values, for condition 2).
        shift_residual: The error of the best linear map from each vector to
            the one `shift` positions further, relative to the vectors
            (condition 4). NaN where there are too few positions to tell, and
            always inside attention.
        difference_residual: The part of the variation of the similarities
            that is not a function of distance and direction (of the difference
            of two vectors), 0 to 1; 0 where nothing varies. Inside attention,
            where similarities are the scores, this is condition 4.
        similarity: Mean similarity, `(length,)`, of tokens 0, 1, 2, ...
            apart: the scalar product, or the score.
    """

    smallest_distance: float
    neighbour_distance: float
    neighbour_spread: float
    norm: float
    norm_spread: float
    shift_residual: float
    difference_residual: float
    similarity: npt.NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers, ready for JSON: NaN becomes None."""
        numbers = dataclasses.asdict(self)
        similarity = numbers.pop("similarity").tolist()
        return {
            **{
                name: value if math.isfinite(value) else None
                for name, value in numbers.items()
            },
            "similarity": similarity,
        }


def properties(
    encoding: Any,
    length: int,
    dim: int,
    *,
    shift: int = 1,
    num_heads: int = 8,
    positions: Any = None,
) -> Properties:
    """Measures an encoding against the conditions of a good one.

    Args:
        encoding: A layer that encodes its input, such as `PositionalEncoding`;
            an `AttentionPosition`; or an array `(length, dim)`.
        length: How many positions; at least 2.
        dim: Width of the inputs, or of a head.
        shift: The shift in positions of `shift_residual`.
        num_heads: How many heads, for positions inside attention.
        positions: As for `score_matrix`, for positions inside attention, such
            as rows and columns for `RotaryEmbedding(axes=2)`.

    Returns:
        `Properties`.

    Raises:
        ValueError: An invalid argument.

    Example:
    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import properties
    >>> found = properties(kp.PositionalEncoding(), length=5, dim=6)
    >>> round(found.neighbour_distance, 4), round(found.norm, 4)
    (0.96, 1.7321)
    >>> round(float(found.similarity[1]), 4)
    2.5392
    """
    length = check_positive_int("length", length)
    shift = check_positive_int("shift", shift)
    if length <= shift:
        raise ValueError(
            "`length` must be above `shift`. "
            f"Received: length={length}, shift={shift}"
        )
    residual = math.nan
    if isinstance(encoding, AttentionPosition):
        scores = score_matrix(
            encoding, length, dim, num_heads, positions=positions
        )
        vectors = np.concatenate(list(scores), axis=-1)
    else:
        if positions is not None:
            raise ValueError(
                "`positions` is for positions inside attention. Received: "
                f"positions with an encoding of type {type(encoding).__name__}"
            )
        vectors = encoding_vectors(encoding, length, dim)
        scores = (vectors @ vectors.T)[np.newaxis]
        residual = _shift_residual(vectors, shift)
    steps = np.linalg.norm(np.diff(vectors, axis=0), axis=-1)
    norms = np.linalg.norm(vectors, axis=-1)
    return Properties(
        smallest_distance=_smallest_distance(vectors),
        neighbour_distance=float(np.mean(steps)),
        neighbour_spread=_spread(steps),
        norm=float(np.mean(norms)),
        norm_spread=_spread(norms),
        shift_residual=residual,
        difference_residual=_difference_residual(
            scores, _differences(length, positions)
        ),
        similarity=_by_distance(np.mean(scores, axis=0)),
    )


def _spread(values: npt.NDArray[np.float64]) -> float:
    mean = np.mean(values)
    return float(np.ptp(values) / mean) if mean else 0.0


def _smallest_distance(vectors: npt.NDArray[np.float64]) -> float:
    # Row by row: the differences of all pairs at once would be large, and the
    # shortcut by scalar products loses the digits that tell neighbours apart.
    return min(
        float(np.min(np.linalg.norm(vectors[row + 1 :] - vector, axis=-1)))
        for row, vector in enumerate(vectors[:-1])
    )


def _shift_residual(vectors: npt.NDArray[np.float64], shift: int) -> float:
    before, after = vectors[:-shift], vectors[shift:]
    if len(before) <= vectors.shape[1]:
        return math.nan  # so few vectors always have a map that fits
    fitted, *_ = np.linalg.lstsq(before, after)
    rest, scale = np.linalg.norm(before @ fitted - after), np.linalg.norm(after)
    return float(rest / scale) if scale else 0.0


def _differences(length: int, positions: Any) -> npt.NDArray[np.int64]:
    """Numbers the differences of positions, of each pair: (length**2,)."""
    index = np.arange(length)
    if positions is None:
        return (index - index[:, np.newaxis] + length - 1).reshape(-1)
    places = np.reshape(np.asarray(positions, "float64"), (length, -1))
    # (query, key, axes) -> (query * key, axes)
    apart = (places - places[:, np.newaxis]).reshape(length**2, -1)
    _, alike = np.unique(apart, axis=0, return_inverse=True)
    return np.asarray(alike, "int64").reshape(-1)


def _difference_residual(
    scores: npt.NDArray[np.float64], alike: npt.NDArray[np.int64]
) -> float:
    counts = np.bincount(alike)
    rest, varied = 0.0, 0.0
    for matrix in scores:
        values = matrix.reshape(-1)
        means = np.bincount(alike, values) / counts
        rest += np.sum(np.square(values - means[alike]))
        varied += np.sum(np.square(values - np.mean(values)))
    # Where the scores vary by no more than rounding, nothing varies.
    if varied <= scores.size * (2.0**-22 * np.max(np.abs(scores))) ** 2:
        return 0.0
    return math.sqrt(rest / varied)


def _by_distance(
    similarity: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    length = len(similarity)
    return np.array(
        [
            np.mean(
                [
                    *np.diagonal(similarity, distance),
                    *np.diagonal(similarity, -distance),
                ]
            )
            for distance in range(length)
        ]
    )
