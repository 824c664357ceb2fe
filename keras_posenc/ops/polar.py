"""Polar positions, PoPE: features are lengths, positions are angles."""

import math
from typing import Any

from keras import ops

from keras_posenc.ops.forgetting import log_gates
from keras_posenc.ops.sinusoids import add_angles


def polar_vectors(x: Any, *, sine: Any, cosine: Any) -> Any:
    """Returns vectors of two coordinates for each feature.

    Their length is the softplus of the feature, their angle the given one.

    Args:
        x: `(..., dim)`.
        sine: Sines of the angles; broadcasts to the shape of `x`.
        cosine: Cosines of the angles; broadcasts to the shape of `x`.

    Returns:
        `(..., 2 * dim)`: all first coordinates, then all second ones.

    References:
        - [Gopalakrishnan et al., 2025](https://arxiv.org/abs/2509.10534)
    """
    lengths = -log_gates(-x)  # the softplus
    return ops.concatenate([lengths * cosine, lengths * sine], axis=-1)


def turned_back(angles: tuple[Any, Any], by: Any) -> tuple[Any, Any]:
    """Returns sines and cosines of angles minus `by`, cut to -2 pi ... 0.

    Args:
        angles: Their sines and cosines, which broadcast with `by`.
        by: Radians, `(heads, 1, dim)`.
    """
    by = ops.clip(by, -2 * math.pi, 0.0)
    return add_angles(angles, (-ops.sin(by), ops.cos(by)))
