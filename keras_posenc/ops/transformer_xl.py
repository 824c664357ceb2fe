"""Transformer-XL's position scores, by angle addition."""

from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.broadcasting import spread
from keras_posenc.ops.relative import matmul_rows_of_heads
from keras_posenc.ops.sinusoids import Phases


def transformer_xl_scores(
    query: Any,
    kernel: Any,
    *,
    query_positions: Any,
    key_positions: Any,
    rates: np.ndarray,
    dtype: str = "float32",
) -> Any:
    """Returns products of queries with the encoding of each distance.

    That is query · (kernel R(i - j)), where R(d) is the sinusoidal encoding of
    d. The paper computes R for all distances, and shifts each row of scores
    into place. But the encoding of a difference follows from those of its ends:

        sin (i - j) w = sin i w cos j w - cos i w sin j w
        cos (i - j) w = cos i w cos j w + sin i w sin j w

    So the scores are one matrix product, of queries rotated by the encoding of
    i with the encodings of j. It needs no shift, and is as accurate as
    `Phases` for positions of any kind.

    Args:
        query: `(batch, heads, query, dim)`.
        kernel: `(2 * pairs, heads, dim)`, sines first.
        query_positions: `(batch, query)` or `(1, query)`.
        key_positions: `(batch, key)` or `(1, key)`.
        rates: Radians per position of each pair.
        dtype: `"float32"` or `"float64"`, the dtype of the arithmetic.

    Returns:
        `(batch, heads, query, key)`.

    References:
        - [Dai et al., 2019](https://arxiv.org/abs/1901.02860)
    """
    batch, heads, queries, _ = ops.shape(query)
    turned = matmul_rows_of_heads(query, kernel)
    width = kernel.shape[0]
    phases = Phases(rates, dtype=dtype)
    sine, cosine = (
        ops.expand_dims(part, 1) for part in phases.at(query_positions)
    )
    by_sine, by_cosine = ops.split(turned, 2, axis=-1)
    # Axes are counted from the first: within branches, Keras's exporter to
    # ONNX does not know how many there are.
    left = ops.concatenate(
        [
            by_cosine * sine - by_sine * cosine,
            by_sine * sine + by_cosine * cosine,
        ],
        axis=3,
    )
    right = ops.concatenate(phases.at(key_positions), axis=2)
    keys = ops.shape(right)[1]
    right = spread(right, (batch, keys))
    # (batch, heads * query, width) by (batch, width, key)
    scores = ops.matmul(
        ops.reshape(left, (batch, heads * queries, width)),
        ops.transpose(right, (0, 2, 1)),
    )
    return ops.reshape(scores, (batch, heads, queries, keys))
