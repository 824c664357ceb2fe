"""Encodings as arrays: a vector for each position, or a score for each pair."""

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.positional._position_axes import check_position_axes
from keras_posenc.positional.attention_position import AttentionPosition

FloatArray = npt.NDArray[np.float64]


def encoding_vectors(encoding: Any, length: int, dim: int) -> FloatArray:
    """Returns the vectors that an encoding of the input gives positions.

    Args:
        encoding: A layer of the input, such as `PositionalEncoding`, whatever
            its `merge_mode`; or an array of shape `(length, dim)` already.
        length: How many positions.
        dim: Width of the inputs.

    Returns:
        float64 array of shape `(length, width)`.

    Raises:
        ValueError: Neither a layer that encodes its input nor such an array.

    Example:
    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import encoding_vectors
    >>> encoding_vectors(kp.PositionalEncoding(), 3, 2).round(2).tolist()
    [[0.0, 1.0], [0.84, 0.54], [0.91, -0.42]]
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

    Example:
    >>> import keras_posenc as kp
    >>> from keras_posenc.analysis import score_matrix
    >>> score_matrix(kp.AlibiBias(), 3, 4, num_heads=1)[0, 0].tolist()
    [2.0, 1.99609375, 1.9921875]
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
