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

# The position whose scale is 1, on which scores do not depend, and how far from
# it others may be, in units of `scale_base`. What is scaled must stay within
# the normal numbers of its dtype: the fastest decay is 0.4 / 1.4, and its power
# 2**101, or 2**9 in float16. Texts begin at 0, so that most is after it.
_CENTRE, _REACH = 48, 56
_CENTRE_OF_FLOAT16, _REACH_OF_FLOAT16 = 2, 5


def pair_decays(pairs: int) -> np.ndarray:
    """Returns the decay of each pair over `scale_base` tokens: (pairs,)."""
    return (np.arange(pairs) / pairs + 0.4) / 1.4


def decay_scales(
    positions: Any,
    *,
    pairs: int,
    scale_base: int,
    sign: int,
    dtype: str,
    is_float16: bool = False,
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
        is_float16: Whether what is scaled will be rounded to float16.

    Returns:
        `(batch, seq, pairs)`; NaN for a position that is out of reach.

    References:
        - [Sun et al., 2022](https://arxiv.org/abs/2212.10554)
    """
    centre, reach = _CENTRE, _REACH
    if is_float16:
        centre, reach = _CENTRE_OF_FLOAT16, _REACH_OF_FLOAT16
    whole, fraction, valid = split_positions(positions, exact=dtype)
    unit = floor_divide(whole, scale_base) - centre
    valid = ops.logical_and(valid, ops.abs(unit) <= reach)
    rest = ops.cast(mod(whole, scale_base), dtype)
    if fraction is not None:
        rest = rest + ops.cast(fraction, dtype)
    rows = _table(pairs, sign, reach, dtype)
    invalid, log = len(rows) - 2, len(rows) - 1
    table = ops.convert_to_tensor(kept_table(rows))
    powers = rows_of(table, ops.where(valid, unit + reach, invalid))
    logarithms = rows_of(table, ops.where(valid, log, invalid))
    return powers * ops.exp(ops.expand_dims(rest, -1) / scale_base * logarithms)


@functools.lru_cache(maxsize=16)
def _table(pairs: int, sign: int, reach: int, dtype: str) -> np.ndarray:
    """Returns powers of whole units, NaN, and logarithms, in rows."""
    decays = pair_decays(pairs)
    units = np.arange(-reach, reach + 1)[:, np.newaxis]
    rows = [decays ** (sign * units), decays * np.nan, sign * np.log(decays)]
    table = np.vstack(rows).astype(dtype)
    table.flags.writeable = False
    return table
