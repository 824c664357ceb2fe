"""Rotary embeddings: pairs of features, rotated by angles of positions."""

from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.plain_export import floor_divide, kept_table, mod, rows_of
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.reductions import largest
from keras_posenc.ops.sinusoids import (
    LIMIT,
    Phases,
    add_angles,
    split_positions,
)


def rotate_pairs(x: Any, *, sine: Any, cosine: Any, layout: str) -> Any:
    """Rotates the pairs of features of `x`, `(..., 2 * pairs)`.

    Args:
        x: Features; pair `j` is the columns `j` and `pairs + j`
            (`layout="halves"`), or `2 j` and `2 j + 1` (`"interleaved"`).
        sine: Sines of the angles; broadcasts to `(..., pairs)`.
        cosine: Cosines of the angles; broadcasts to `(..., pairs)`.
        layout: `"halves"` or `"interleaved"`.

    Returns:
        A tensor like `x`.

    References:
        - [Su et al., 2021](https://arxiv.org/abs/2104.09864)
    """
    if layout == "halves":
        a, b = ops.split(x, 2, axis=-1)
        return ops.concatenate(
            [a * cosine - b * sine, a * sine + b * cosine], axis=-1
        )
    shape = ops.shape(x)
    # (..., 2 * pairs) -> two of (..., pairs, 1)
    a, b = ops.split(
        ops.reshape(x, (*shape[:-1], x.shape[-1] // 2, 2)), 2, axis=-1
    )
    sine, cosine = ops.expand_dims(sine, -1), ops.expand_dims(cosine, -1)
    turned = ops.concatenate(
        [a * cosine - b * sine, a * sine + b * cosine], axis=-1
    )
    return ops.reshape(turned, shape)


def lengths_seen(positions: Any) -> Any:
    """Returns each row's longest position + 1: (..., seq) -> int32 (..., 1)."""
    whole, _, _ = split_positions(positions)
    return largest(whole, axis=-1, keepdims=True) + 1


def phases_by_length(
    positions: Any, *, short: Phases, long: Phases, original_length: int
) -> tuple[Any, Any]:
    """Uses `short`, or `long` for rows beyond the original length."""
    is_long = ops.expand_dims(lengths_seen(positions) > original_length, -1)
    sine, cosine = (
        ops.where(is_long, y, x)
        for x, y in zip(short.at(positions), long.at(positions), strict=True)
    )
    return sine, cosine


def dynamic_phases(
    positions: Any,
    *,
    dim: int,
    max_wavelength: float,
    factor: float,
    original_length: int,
    dtype: str = "float32",
) -> tuple[Any, Any]:
    """Returns sines and cosines at frequencies that fall with a row's length.

    Let s = 1 + factor * (length - original) / original if the row is longer
    than the original length. The base grows by s^(dim / (dim - 2)), so pair j
    rotates by c_j - c_j (1 - s^-a_j), where c_j is the original angle and
    a_j = 2 j / (dim - 2). The first angle comes from the exact tables; the
    graph computes only the second, which is 0 within the original length.

    Frequencies have float32 accuracy, about 2**-21. But they are the same at
    all positions of a row, and for these frequencies the angles are accurate
    to 1e-6 more than those of `Phases`: scores depend only on differences of
    positions.

    Args:
        positions: `(..., seq)`; each row has its own length.
        dim: Number of features: twice the pairs.
        max_wavelength: The base of the progression of wavelengths.
        factor: The ratio of the final to the original length.
        original_length: Up to this length nothing changes.
        dtype: `"float32"` or `"float64"`, the dtype of the arithmetic.

    Returns:
        Two tensors of shape `(*positions.shape, dim // 2)`.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength)
    pair = np.arange(dim // 2)
    # As bits, and gathered by a dynamic index: converters to float16 would
    # round a constant. Row 0 is for rows whose frequencies do not change.
    growing = np.concatenate(
        [
            rates / (2 * np.pi),
            2 * pair / max(dim - 2, 1),
            [factor / original_length, 2 * np.pi],
        ]
    ).astype(dtype)
    table = kept_table(np.stack([0 * growing, growing]))
    excess = ops.clip(lengths_seen(positions) - original_length, 0, LIMIT)
    # (..., 1) -> (..., 1, columns)
    row = rows_of(ops.convert_to_tensor(table), ops.minimum(excess, 1))
    turns, exponent, growth, circle = ops.split(
        row, [dim // 2, dim // 2 * 2, dim // 2 * 2 + 1], axis=-1
    )
    excess = ops.expand_dims(ops.cast(excess, dtype), -1)
    slowdown = ops.exp(-exponent * ops.log(1 + excess * growth))
    lag = circle * _fractions_of_turns(positions, turns * (1 - slowdown), dtype)
    return add_angles(
        Phases(rates, dtype=dtype).at(positions), (-ops.sin(lag), ops.cos(lag))
    )


def _fractions_of_turns(positions: Any, turns: Any, dtype: str) -> Any:
    """Returns positions times turns, minus whole turns, in +-0.5.

    float32 cannot hold the product of a position and a frequency. So both are
    split into pieces of 12 bits, whose products it holds exactly.

    Args:
        positions: `(..., seq)`.
        turns: Turns for each position, in [0, 1): `(..., 1, pairs)`.
        dtype: The dtype of the arithmetic.
    """

    def centred(x: Any) -> Any:
        return x - ops.round(x)

    whole, fraction, _ = split_positions(positions, exact=dtype)
    high, low = (
        ops.expand_dims(ops.cast(digit, dtype), -1)
        for digit in (floor_divide(whole, 4096), mod(whole, 4096))
    )
    # turns = (a + (b + c) / 4096) / 4096, a and b whole, c in [0, 1); high
    # times a is a whole number of turns.
    rest = turns * 4096
    a = ops.floor(rest)
    rest = (rest - a) * 4096
    b = ops.floor(rest)
    c = rest - b
    exact = centred(
        centred(high * b / 4096) + centred(low * a / 4096)
    ) + centred(low * b / 4096 / 4096)
    small = high * c / 4096 + low * c / 4096 / 4096
    if fraction is not None:
        small = small + ops.expand_dims(ops.cast(fraction, dtype), -1) * turns
    return centred(exact + small)
