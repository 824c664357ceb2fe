"""Frequencies of rotary embeddings and their scalings, in radians per position.

Everything here is NumPy in float64, computed once for each layer, before any
graph. Arguments have the names of Hugging Face's `rope_parameters`.
"""

import math
from collections.abc import Sequence

import numpy as np

from keras_posenc.ops.positional_encoding import frequencies


def linear_rates(
    dim: int, *, max_wavelength: float, factor: float
) -> np.ndarray:
    """Divides all frequencies by one factor: positions are interpolated."""
    return frequencies(dim, max_wavelength=max_wavelength) / factor


def longrope_rates(
    dim: int, *, max_wavelength: float, factors: Sequence[float]
) -> np.ndarray:
    """Divides each frequency by a factor of its own, found by search."""
    return frequencies(dim, max_wavelength=max_wavelength) / np.asarray(
        factors, "float64"
    )


def yarn_rates(
    dim: int,
    *,
    max_wavelength: float,
    factor: float,
    original_max_position_embeddings: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> np.ndarray:
    """Divides low frequencies by a factor, with a ramp to high ones.

    Frequencies of `beta_fast` turns within the original length, or more, stay;
    those of `beta_slow` turns or fewer are divided. With `truncate` the ramp
    begins and ends at whole pairs.
    """

    def pair_of(turns: float) -> float:
        wavelength = original_max_position_embeddings / turns
        return (
            dim
            * math.log(wavelength / (2 * math.pi))
            / (2 * math.log(max_wavelength))
        )

    first, last = pair_of(beta_fast), pair_of(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    low, high = max(first, 0), min(last, dim - 1)
    width = high - low or 0.001  # a step if both are the same pair
    ramp = np.clip((np.arange(dim // 2) - low) / width, 0, 1)
    rates = frequencies(dim, max_wavelength=max_wavelength)
    return rates * (1 - ramp) + rates / factor * ramp


def llama3_rates(
    dim: int,
    *,
    max_wavelength: float,
    factor: float,
    original_max_position_embeddings: int,
    low_freq_factor: float,
    high_freq_factor: float,
) -> np.ndarray:
    """Divides as yarn does, with a ramp in turns rather than in pairs."""
    rates = frequencies(dim, max_wavelength=max_wavelength)
    turns = original_max_position_embeddings * rates / (2 * math.pi)
    share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    share = np.clip(share, 0, 1)
    return rates * share + rates / factor * (1 - share)


def proportional_rates(
    dim: int,
    *,
    max_wavelength: float,
    partial_rotary_factor: float,
    factor: float = 1.0,
) -> np.ndarray:
    """Keeps the highest frequencies, and sets the others to 0.

    Unlike a partial rotation, which spreads the frequencies of all pairs over
    fewer, each pair keeps the frequency that it has among all.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength) / factor
    rates[proportional_pairs(dim // 2, partial_rotary_factor) :] = 0
    return rates


def proportional_pairs(pairs: int, partial_rotary_factor: float) -> int:
    """Returns how many of the pairs a proportional rotation rotates."""
    return int(partial_rotary_factor * 2 * pairs // 2)


def clipped_rates(
    dim: int, *, max_wavelength: float, clipped_pairs: int
) -> np.ndarray:
    """Lowers the lowest frequencies along half a cosine, the last one to 0.

    The first of the `clipped_pairs` keeps its frequency, as in the published
    code.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength)
    clipped = min(clipped_pairs, len(rates))
    phase = np.linspace(0, math.pi, clipped)
    rates[len(rates) - clipped :] *= (1 + np.cos(phase)) / 2
    return rates


def yarn_attention_factor(
    factor: float, *, mscale: float = 1.0, mscale_all_dim: float = 0.0
) -> float:
    """Computes yarn's factor for queries and keys.

    It grows by `mscale` with the logarithm of `factor`, to keep the softmax
    equally sharp; `mscale_all_dim` is the part that models have in scores.
    """
    growth = 0.1 * math.log(max(factor, 1.0))
    return (mscale * growth + 1.0) / (mscale_all_dim * growth + 1.0)


def longrope_attention_factor(
    factor: float, *, original_max_position_embeddings: int
) -> float:
    """Computes longrope's factor for queries and keys."""
    growth = math.log(max(factor, 1.0))
    return math.sqrt(1 + growth / math.log(original_max_position_embeddings))
