"""How fast each pair of features turns: rotary embeddings and their scalings.

Everything here is NumPy in float64, once for each layer, before any graph.
Names are those of Hugging Face's `rope_parameters`, but for `scaling_factor`.
"""

import math
from collections.abc import Sequence

import numpy as np

from keras_posenc.ops.positional_encoding import frequencies


def linear_rates(
    dim: int, *, max_wavelength: float, scaling_factor: float
) -> np.ndarray:
    """All slower by one factor: positions are interpolated."""
    return frequencies(dim, max_wavelength=max_wavelength) / scaling_factor


def longrope_rates(
    dim: int, *, max_wavelength: float, factors: Sequence[float]
) -> np.ndarray:
    """Each slower by a factor of its own, found by search."""
    return frequencies(dim, max_wavelength=max_wavelength) / np.asarray(
        factors, "float64"
    )


def yarn_rates(
    dim: int,
    *,
    max_wavelength: float,
    scaling_factor: float,
    original_max_position_embeddings: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> np.ndarray:
    """Pairs that turn often stay, rare ones slow down, a ramp between them.

    "Often" is `beta_fast` turns within the original length, "rare" is
    `beta_slow`. With `truncate` the ramp begins and ends at whole pairs.
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
    width = high - low or 0.001  # a step where both are one pair
    ramp = np.clip((np.arange(dim // 2) - low) / width, 0, 1)
    rates = frequencies(dim, max_wavelength=max_wavelength)
    return rates * (1 - ramp) + rates / scaling_factor * ramp


def llama3_rates(
    dim: int,
    *,
    max_wavelength: float,
    scaling_factor: float,
    original_max_position_embeddings: int,
    low_freq_factor: float,
    high_freq_factor: float,
) -> np.ndarray:
    """As yarn, with the ramp in turns rather than in pairs."""
    rates = frequencies(dim, max_wavelength=max_wavelength)
    turns = original_max_position_embeddings * rates / (2 * math.pi)
    share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    share = np.clip(share, 0, 1)
    return rates * share + rates / scaling_factor * (1 - share)


def yarn_attention_factor(
    scaling_factor: float, *, mscale: float = 1.0, mscale_all_dim: float = 0.0
) -> float:
    """What queries and keys grow by, to keep the softmax as sharp.

    `mscale` is how steeply they grow with the logarithm of the factor, and
    `mscale_all_dim` what of that a model already does in its scores.
    """
    growth = 0.1 * math.log(max(scaling_factor, 1.0))
    return (mscale * growth + 1.0) / (mscale_all_dim * growth + 1.0)


def longrope_attention_factor(
    scaling_factor: float, *, original_max_position_embeddings: int
) -> float:
    """What queries and keys grow by, to keep the softmax as sharp."""
    growth = math.log(max(scaling_factor, 1.0))
    return math.sqrt(1 + growth / math.log(original_max_position_embeddings))
