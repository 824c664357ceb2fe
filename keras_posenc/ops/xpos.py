"""The decay of xPos: factors of pairs of features that fall with distance."""

import functools
from typing import Any

import numpy as np
from keras import ops

from keras_posenc.ops.plain_export import (
    floor_divide,
    kept_table,
    mod,
    rows_of,
)
from keras_posenc.ops.sinusoids import split_positions

#: Powers of the decays are at most these, so that what is scaled up and down
#: stays within the normal numbers of float32 and bfloat16: the fastest decay is
#: 0.4 / 1.4, and its power 2**101.
REACH = 56
#: The position in the middle, in units of `scale_base`: chosen so that texts,
#: which begin at 0, may be long. Scores do not depend on it.
CENTRE = 48
_INVALID = 2 * REACH + 1  # NaN
_LOGARITHMS = 2 * REACH + 2


def pair_decays(pairs: int) -> np.ndarray:
    """Returns the decay of each pair over `scale_base` tokens: (pairs,)."""
    return (np.arange(pairs) / pairs + 0.4) / 1.4


def decay_scales(
    positions: Any, *, pairs: int, scale_base: int, sign: int, dtype: str
) -> Any:
    """Returns decay ** (sign * (position / scale_base - centre)).

    The power of the whole number of units comes from a table, and the rest, of
    at most one unit, is computed: so errors do not grow with the position.

    Args:
        positions: `(batch, seq)`.
        pairs: The number of pairs.
        scale_base: How many positions are a unit.
        sign: 1 for queries, -1 for keys.
        dtype: The dtype of the arithmetic.

    Returns:
        `(batch, seq, pairs)`; NaN for a position farther than `REACH` units
        from the centre.

    References:
        - [Sun et al., 2022](https://arxiv.org/abs/2212.10554)
    """
    whole, fraction, valid = split_positions(positions, exact=dtype)
    unit = floor_divide(whole, scale_base) - CENTRE
    valid = ops.logical_and(valid, ops.abs(unit) <= REACH)
    rest = ops.cast(mod(whole, scale_base), dtype)
    if fraction is not None:
        rest = rest + ops.cast(fraction, dtype)
    table = ops.convert_to_tensor(kept_table(_table(pairs, sign, dtype)))
    powers = rows_of(table, ops.where(valid, unit + REACH, _INVALID))
    logarithms = rows_of(table, ops.where(valid, _LOGARITHMS, _INVALID))
    return powers * ops.exp(ops.expand_dims(rest, -1) / scale_base * logarithms)


@functools.lru_cache(maxsize=16)
def _table(pairs: int, sign: int, dtype: str) -> np.ndarray:
    """Returns powers of whole units, NaN, and logarithms, in rows."""
    decays = pair_decays(pairs)
    units = np.arange(-REACH, REACH + 1)[:, np.newaxis]
    rows = [decays ** (sign * units), decays * np.nan, sign * np.log(decays)]
    table = np.vstack(rows).astype(dtype)
    table.flags.writeable = False
    return table
