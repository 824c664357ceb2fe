"""Rotary embeddings of vectors: which pair of features follows which axis."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.checks import as_integer, check_bool, check_positive_int
from keras_posenc.ops.rotary_scaling import scaled_phases

SECTIONS, INTERLEAVED = "mrope_section", "mrope_interleaved"


def check_axes(value: Any) -> int | dict[str, Any] | None:
    """Checks how a head is shared out among the axes of positions.

    Returns:
        None, a number of axes, or a dict with `mrope_section`, a list of
        integers, and `mrope_interleaved`.

    Raises:
        ValueError: It is none of these, or of fewer than two axes.
    """
    if value is None:
        return None
    number = as_integer(value)
    if number is not None and number >= 2:
        return number
    if not isinstance(value, Mapping) or SECTIONS not in value:
        raise ValueError(
            "`axes` must be None, a number of axes from 2 on, or a dict such "
            "as {'mrope_section': [16, 24, 24], 'mrope_interleaved': False}. "
            f"Received: axes={value!r}"
        )
    unknown = [key for key in value if key not in (SECTIONS, INTERLEAVED)]
    if unknown:
        raise ValueError(
            f"`axes` as a dict has the keys '{SECTIONS}' and '{INTERLEAVED}' "
            f"alone. Received: axes={dict(value)!r}"
        )
    sections = value[SECTIONS]
    if not isinstance(sections, Sequence) or len(sections) < 2:
        raise ValueError(
            f"`axes['{SECTIONS}']` must be a list of at least two integers, "
            "how many pairs of features each axis rotates. "
            f"Received: axes={dict(value)!r}"
        )
    checked: dict[str, Any] = {
        SECTIONS: [
            check_positive_int(f"axes['{SECTIONS}'][{axis}]", size)
            for axis, size in enumerate(sections)
        ],
        INTERLEAVED: check_bool(
            f"axes['{INTERLEAVED}']", value.get(INTERLEAVED, False)
        ),
    }
    if checked[INTERLEAVED]:
        _check_turns(checked[SECTIONS])
    return checked


def _check_turns(sections: Sequence[int]) -> None:
    """Raises `ValueError` for pairs that no head of these sections has."""
    pairs = sum(sections)
    for axis, size in enumerate(sections[1:], start=1):
        last = axis + (size - 1) * len(sections)
        if last >= pairs:
            raise ValueError(
                f"`axes` with '{INTERLEAVED}' gives axis {axis} one of every "
                f"{len(sections)} pairs, from {axis} to {last}, and the "
                f"sections sum to {pairs} pairs. Make the first section "
                f"larger. Received: {SECTIONS}={list(sections)!r}"
            )


def axis_count(axes: int | Mapping[str, Any] | None) -> int | None:
    """Returns how many axes positions have; None where they are numbers."""
    return len(axes[SECTIONS]) if isinstance(axes, Mapping) else axes


def fits(axes: int | Mapping[str, Any], dim: int) -> bool:
    """Returns whether `dim` rotated features can be shared out."""
    if isinstance(axes, Mapping):
        return bool(2 * sum(axes[SECTIONS]) == dim)
    return dim % (2 * axes) == 0


def phases_of_axes(
    positions: Any,
    *,
    axes: int | Mapping[str, Any],
    dim: int,
    **options: Any,
) -> tuple[Any, Any]:
    """Computes sines and cosines of positions that are vectors.

    Args:
        positions: `(batch, seq, axes)`.
        axes: What `check_axes` returned. Of a number of axes, each has its
            share of the pairs, with frequencies as of a head of that width.
            With sections, pair `j` has the frequency of pair `j` of the head,
            and follows one axis.
        dim: Number of features to rotate.
        **options: As for `scaled_phases`.

    Returns:
        Two tensors of shape `(batch, seq, dim // 2)`.
    """
    if not isinstance(axes, Mapping):
        parts = scaled_phases(positions, dim=dim // axes, **options)
        # (batch, seq, axes, pairs of one) -> (batch, seq, pairs)
        sine, cosine = (_joined(part, dim // 2) for part in parts)
        return sine, cosine
    parts = scaled_phases(positions, dim=dim, **options)
    pairs = dim // 2
    # Of (batch, seq, axes * pairs), pair `j` of its axis.
    of = (_axis_of_pairs(axes) * pairs + np.arange(pairs)).astype("int32")
    sine, cosine = (
        ops.take(_joined(part, len(axes[SECTIONS]) * pairs), of, axis=-1)
        for part in parts
    )
    return sine, cosine


def _joined(x: Any, width: int) -> Any:
    """Joins the last two axes: the result is `(batch, seq, width)`."""
    return ops.reshape(x, (*ops.shape(x)[:2], width))


def _axis_of_pairs(axes: Mapping[str, Any]) -> np.ndarray:
    """Returns the axis that each pair of features follows, `(pairs,)`."""
    sections = axes[SECTIONS]
    if not axes[INTERLEAVED]:
        return np.repeat(np.arange(len(sections)), sections)
    of = np.zeros(sum(sections), "int64")
    for axis, size in enumerate(sections[1:], start=1):
        of[axis : size * len(sections) : len(sections)] = axis
    return of
