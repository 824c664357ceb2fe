"""Fourier positions, FoPE: each pair turns by several frequencies at once."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.attention import swap_heads
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.positional_encoding import frequencies


def trained_frequencies(
    dim: int, *, max_wavelength: float, training_length: int
) -> np.ndarray:
    """Returns the frequencies that turn at least once in a text of training.

    They are the first ones: float64, `(pairs,)`, radians per position.
    """
    rates = frequencies(dim, max_wavelength=max_wavelength)
    return rates[rates >= 2 * math.pi / training_length]


def mixed(
    sine: Any, cosine: Any, *, coefficients: Any, heads: int
) -> tuple[Any, Any]:
    """Mixes sines, and cosines, of all frequencies, for each head.

    Args:
        sine: `(batch, seq, pairs)`.
        cosine: `(batch, seq, pairs)`.
        coefficients: Of sines and of cosines, `(2, groups, pairs, pairs)`:
            column `j` holds the share of each frequency in pair `j`.
        heads: How many heads, a multiple of the groups.

    Returns:
        Two tensors, `(batch, heads, seq, pairs)`.

    References:
        - [Hua et al., 2024](https://arxiv.org/abs/2412.17739)
    """
    _, groups, pairs, _ = coefficients.shape
    if heads > groups:  # adjacent heads are a group
        coefficients = ops.repeat(coefficients, heads // groups, axis=1)
    # (2, heads, pairs, pairs) -> two of (pairs, heads * pairs): a product that
    # broadcasts corrupts TensorFlow's memory, (5, 1, 7, 2) by (2, 2) in 2.21.
    kernels = ops.reshape(
        ops.transpose(coefficients, (0, 2, 1, 3)), (2, pairs, heads * pairs)
    )
    sine, cosine = (
        swap_heads(
            ops.reshape(
                ops.matmul(ops.reshape(each, (-1, pairs)), kernels[i]),
                (*outer_sizes(each), heads, pairs),
            )
        )
        for i, each in enumerate((sine, cosine))
    )
    return sine, cosine
