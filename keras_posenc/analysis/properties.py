"""Encodings as arrays, the conditions of a good one, and a table of all."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_posenc.checks import (
    check_choice,
    check_integer,
    check_max_wavelength,
    check_positive_int,
)
from keras_posenc.ops.positional_encoding import LAYOUTS, frequencies
from keras_posenc.positional.attention_position import (
    AttentionPosition,
    check_position_axes,
)
from keras_posenc.positional.biases import (
    AlibiBias,
    FireBias,
    KerpleBias,
    RelativePositionBias,
    RelativePositionEmbedding,
    TransformerXLBias,
)
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.positional.positional_encoding import (
    IndexEncoding,
    PositionalEncoding,
)
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.positional.time_encoding import TimeEncoding
from keras_posenc.progress import progress

FloatArray = npt.NDArray[np.float64]


def encoding_vectors(encoding: Any, length: int, dim: int) -> FloatArray:
    """Returns the vectors that an encoding of the input gives positions.

    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import encoding_vectors
    >>> encoding_vectors(kp.PositionalEncoding(), 3, 2).round(2).tolist()
    [[0.0, 1.0], [0.84, 0.54], [0.91, -0.42]]

    Args:
        encoding: A layer of the input, such as `PositionalEncoding`, whatever
            its `merge_mode`; or an array of shape `(length, dim)` already.
        length: How many positions.
        dim: Width of the inputs.

    Returns:
        float64 array of shape `(length, width)`.

    Raises:
        ValueError: Neither a layer that encodes its input nor such an array.
    """
    length = check_positive_int("length", length)
    dim = check_positive_int("dim", dim)
    if isinstance(encoding, keras.Layer) and not isinstance(
        encoding, AttentionPosition
    ):
        # Added to zeros, or concatenated to them: the rest is the encoding.
        inputs = np.zeros((1, length, dim), "float32")
        vectors = _to_numpy(encoding(inputs))
        if getattr(encoding, "merge_mode", None) == "concat":
            vectors = vectors[..., dim:]
        if vectors.ndim == 3 and vectors.shape[:2] == (1, length):
            return vectors[0]
    if hasattr(encoding, "shape"):
        vectors = _to_numpy(encoding)
        if vectors.ndim == 3 and len(vectors) == 1:
            vectors = vectors[0]
        if vectors.shape == (length, dim):
            return vectors
    hint = ""
    if isinstance(encoding, AttentionPosition):
        hint = "; inside attention there are scores instead (`plot_bias`)"
    raise ValueError(
        "`encoding` must be a layer that encodes its input, or an array of "
        f"shape (length, dim), with length={length}, dim={dim}{hint}. "
        f"Received: encoding={_describe(encoding)}"
    )


def score_matrix(
    position: AttentionPosition,
    length: int,
    dim: int,
    num_heads: int = 8,
    *,
    positions: Any = None,
) -> FloatArray:
    """Returns the scores of positions inside attention for identical tokens.

    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import score_matrix
    >>> score_matrix(kp.AlibiBias(), 3, 4, num_heads=1)[0, 0].tolist()
    [2.0, 1.99609375, 1.9921875]

    Queries and keys are ones, so that scores depend on positions only; without
    positions all are `sqrt(dim)`.

    Args:
        position: The positions. Their `values` hook is not used: it changes
            the outputs of attention, not the scores.
        length: How many positions.
        dim: Width of a head.
        num_heads: How many heads.
        positions: The positions, numbers `(length,)` or vectors `(length,
            axes)`; by default 0, 1, 2 ...

    Returns:
        float64 array of shape `(num_heads, length, length)`: the score of each
        query's position with each key's.

    Raises:
        ValueError: Not an `AttentionPosition`, one of contents, or one that
            takes other positions.
    """
    if not isinstance(position, AttentionPosition):
        raise ValueError(
            "`position` must be an AttentionPosition. "
            f"Received: position={_describe(position)}"
        )
    if position.contextual_bias is not None:
        raise ValueError(
            "`position` must have scores that follow from positions. Those of "
            f"{type(position).__name__} depend on the contents of the tokens: "
            "see the weights of a model instead, with "
            "`return_attention_scores=True`"
        )
    shape = tuple(
        check_positive_int(name, value)
        for name, value in (
            ("num_heads", num_heads),
            ("length", length),
            ("dim", dim),
        )
    )
    if not position.built:
        position.build((1, *shape))
    if positions is None:
        positions = np.arange(length, dtype="int32")
    # (length, ...) -> (1, length, ...)
    positions = ops.expand_dims(ops.convert_to_tensor(positions), 0)
    axes = check_position_axes([position], positions)
    expected = (1, length) if axes is None else (1, length, axes)
    if tuple(positions.shape) != expected:
        raise ValueError(
            f"`positions` must be of shape {expected[1:]}, one for each of "
            f"length={length}. Received: shape {tuple(positions.shape)[1:]}"
        )
    key = ops.ones((1, *shape))
    query = key / dim**0.5
    if position.rotate is not None:
        query = position.rotate(query, positions)
    if position.rotate_keys is not None:
        key = position.rotate_keys(key, positions)
    elif position.rotate is not None:
        key = position.rotate(key, positions)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    if position.bias is not None:
        scores = scores + ops.cast(
            position.bias(query, key, positions, positions), scores.dtype
        )
    return _to_numpy(ops.broadcast_to(scores, (1, *shape[:2], length)))[0]


def _to_numpy(x: Any) -> FloatArray:
    return np.asarray(ops.convert_to_numpy(x)).astype("float64")


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and not isinstance(value, keras.Layer):
        return f"an array of shape {tuple(shape)}"
    return repr(value)


def shift_matrix(
    k: float,
    d_model: int,
    *,
    max_wavelength: float = 10000,
    layout: str = "interleaved",
) -> npt.NDArray[np.float64]:
    """Returns the matrix `M_k` with `PE(p + k) = M_k @ PE(p)` for every `p`.

    >>> from keras_posenc.analysis import shift_matrix
    >>> shift_matrix(1, 2).round(3).tolist()
    [[0.54, 0.841], [-0.841, 0.54]]

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


@dataclasses.dataclass(frozen=True)
class Properties:
    """Measurements of an encoding of positions 0 ... length - 1.

    The vector of a position is its encoding; for positions inside attention,
    it is the row of scores that the position gives all others, over all heads.
    Spreads are the largest minus the smallest, relative to the mean.

    Attributes:
        smallest_distance: Between the vectors of any two positions: 0 where
            two positions look the same (condition 1, uniqueness).
        neighbor_distance: Mean distance of neighbors' vectors.
        neighbor_spread: Spread of these distances (condition 3: equal steps
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
    neighbor_distance: float
    neighbor_spread: float
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

    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import properties
    >>> found = properties(kp.PositionalEncoding(), length=5, dim=6)
    >>> round(found.neighbor_distance, 4), round(found.norm, 4)
    (0.96, 1.7321)
    >>> round(float(found.similarity[1]), 4)
    2.5392

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
        neighbor_distance=float(np.mean(steps)),
        neighbor_spread=_spread(steps),
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
    # shortcut by scalar products loses the digits that tell neighbors apart.
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


#: Makes each kind of position for sequences of a length. Learned ones have
#: their random initial weights.
SCHEMES: dict[str, Callable[[int], keras.Layer]] = {
    "sinusoidal": lambda length: PositionalEncoding(),
    "index": lambda length: IndexEncoding(),
    "index-normalized": lambda length: IndexEncoding(normalize=True),
    "learned": lambda length: PositionEmbedding(length),
    "time": lambda length: TimeEncoding(),
    "rotary": lambda length: RotaryEmbedding(),
    "alibi": lambda length: AlibiBias(),
    "t5": lambda length: RelativePositionBias(),
    "shaw": lambda length: RelativePositionEmbedding(max_distance=16),
    "transformer-xl": lambda length: TransformerXLBias(),
    "kerple": lambda length: KerpleBias(),
    "fire": lambda length: FireBias(),
}


def make_scheme(name: str, length: int) -> keras.Layer:
    """Returns a layer of a kind of position.

    >>> from keras_posenc.analysis import make_scheme
    >>> type(make_scheme("rotary", 128)).__name__
    'RotaryEmbedding'

    Args:
        name: One of `SCHEMES`.
        length: The longest sequence, for kinds that need to know.

    Raises:
        ValueError: An unknown name.
    """
    return SCHEMES[check_choice("scheme", name, tuple(SCHEMES))](length)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The properties of each kind of position, for the same positions.

    `str` gives a table of at most 80 columns, with two digits or more.

    Attributes:
        length: How many positions.
        dim: Width of the encodings, and of a head.
        schemes: `Properties` by the name of the kind.
    """

    length: int
    dim: int
    schemes: Mapping[str, Properties]

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers by kind of position, ready for JSON."""
        return {name: found.to_dict() for name, found in self.schemes.items()}

    def __str__(self) -> str:
        names = ["scheme", "", *self.schemes]
        columns = [
            [first, second, *map(_number, values)]
            for field in dataclasses.fields(Properties)
            if field.name != "similarity"
            for first, _, second in [field.name.partition("_")]
            for values in [
                [getattr(found, field.name) for found in self.schemes.values()]
            ]
        ]
        tables = [
            _table(names, columns[begin : begin + 4])
            for begin in range(0, len(columns), 4)
        ]
        return "\n\n".join("\n".join(lines) for lines in tables)


def compare(
    length: int = 128, dim: int = 64, *, verbose: int = True
) -> Comparison:
    """Measures every kind of position against the conditions of a good one.

    >>> from keras_posenc import analysis
    >>> found = analysis.compare(length=9, dim=4, verbose=False)
    >>> round(found.schemes["sinusoidal"].norm, 4)
    1.4142

    Learned positions are measured with their random initial weights: seed
    Keras to get the same numbers again.

    Args:
        length: How many positions; at least 2.
        dim: Width of the encodings, and of a head.
        verbose: Whether to show progress.

    Returns:
        A `Comparison`: print it, or call its `to_dict()`.

    Raises:
        ValueError: A length or a width that some kind of position cannot have.
    """
    if check_integer("length", length) < 2:
        raise ValueError(f"`length` must be above 1. Received: length={length}")
    if check_positive_int("dim", dim) % 2:
        raise ValueError(
            "`dim` must be even: rotary positions turn features in pairs. "
            f"Received: dim={dim}"
        )
    found = {}
    with progress(verbose) as step:
        for name in SCHEMES:
            step(f"Measuring {name}")
            found[name] = properties(make_scheme(name, length), length, dim)
    return Comparison(length, dim, found)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.2g}"


def _table(names: list[str], columns: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in columns]
    left = max(map(len, names))
    return [
        " ".join(
            [
                name.ljust(left),
                *(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)),
            ]
        ).rstrip()
        for name, *cells in zip(names, *columns, strict=True)
    ]
