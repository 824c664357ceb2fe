"""Checks that layers take the positions of a call, numbers or vectors."""

from collections.abc import Collection
from typing import Any

from keras import ops

from keras_posenc.positional.attention_position import AttentionPosition


def check_position_axes(
    within: Collection[AttentionPosition],
    positions: Any,
    name: str = "positions",
) -> int | None:
    """Checks that positions inside attention take the positions of tokens.

    Args:
        within: The layers that take them.
        positions: As in a call: a tensor, symbolic or not, or None where
            tokens are counted.
        name: The name of the argument.

    Returns:
        How many axes the positions have; None where they are numbers.

    Raises:
        ValueError: A layer takes vectors where positions are numbers, numbers
            where they are vectors, or vectors of another width; or positions
            are vectors, and no layer takes positions.
    """
    if positions is not None and not hasattr(positions, "shape"):
        positions = ops.convert_to_tensor(positions)
    shape = None if positions is None else tuple(positions.shape)
    axes = shape[-1] if shape is not None and len(shape) == 3 else None
    row = f"batch, {'source' if 'memory' in name else 'seq'}"
    if axes is not None and not within:
        raise ValueError(
            f"`{name}` must be of shape ({row}), a number for each token, "
            "without an `attention_position` that takes vectors, such as "
            f"keras_posenc.RotaryEmbedding(axes={axes}). Received: {name} of "
            f"shape {shape}"
        )
    for position in within:
        if axes is None and position.takes_numbers:
            continue
        if axes is not None and axes == position.num_axes:
            continue
        if position.num_axes is None:
            wanted = f"({row}), a number for each token"
        else:
            wanted = f"({row}, {position.num_axes}), a vector for each token"
        received = f"{name} of shape {shape}"
        if positions is None:
            received = (
                f"no {name}, so that tokens are counted. Give what a "
                "GridPositions layer makes of images, or vectors of your own; "
                "or rotate by sections, axes={'mrope_section': [...]}, for "
                "which a number is the same on all axes"
            )
        raise ValueError(
            f"{type(position).__name__} '{position.name}' needs `{name}` of "
            f"shape {wanted}. Received: {received}"
        )
    return axes
