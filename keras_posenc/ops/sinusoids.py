"""Exact sinusoids: a position is a number in base 64.

The sine of a float32 angle is off by about `position * 2 ** -24`, because the
angle is rounded before its sine is taken. Here no large angle ever exists. The
sines and cosines of each digit come from small, correctly rounded tables, and
the digits are combined by the angle addition formulas. With one digit the
result is correctly rounded; with k > 1 digits that are not zero the error is
at most (3.12 k - 2.82) * 2**-24: 2.1e-7 below position 4,096, 3.9e-7 below
262,144, 5.8e-7 below 2**24. A zero digit adds no error (sine 0, cosine 1). The
fraction of a float position is one more addition, whose sine and cosine the
graph computes: at most 3e-7 more.
"""

import dataclasses
import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.positions import plain_positions
from keras_posenc.ops.tables import kept_table, rows_of

LIMIT = 2**24  # beyond it, float32 skips integers, and the tables end

_BASE = 64
# The rows of the table, by digit. The lowest digit has 128 rows, so that a
# block of 64 rows may start anywhere in it; the highest has a 65th row, for
# -2**24, and one of NaN, for positions out of range. The last row holds the
# frequencies themselves, for the fractions of float positions.
_LOW, _MIDDLE, _UPPER, _TOP = 0, 128, 192, 256
_INVALID = _TOP + 65
_FREQUENCIES = _INVALID + 1
_DIGITS = ((1, 128), (_BASE, 64), (_BASE**2, 64), (_BASE**3, 65))
_MOST = LIMIT // _BASE  # the largest number of the higher digits

# So far out of range that positions counted from there are, too; fits int32.
_FAR = 2**30

# No text of dynamic length has more tokens.
_LONGEST = 2**23


class Phases:
    """Exact sines and cosines of positions times arbitrary frequencies.

    Args:
        rates: Radians per position, `(pairs,)`, in float64; at most 1 in
            magnitude if float positions must keep their precision.
        dtype: `"float32"` or `"float64"`, the dtype of the arithmetic.
        xp: `keras.ops`, or NumPy for positions that are known in advance.
    """

    def __init__(
        self, rates: Any, *, dtype: str = "float32", xp: Any = ops
    ) -> None:
        rates = np.ascontiguousarray(rates, "float64")
        self.dtype = dtype
        self._xp = xp
        table = _table(rates.tobytes(), dtype)
        # One constant, even if it is read several times.
        self._table = (
            table if xp is np else ops.convert_to_tensor(kept_table(table))
        )

    def at(self, positions: Any) -> tuple[Any, Any]:
        """Returns sines and cosines at integers or floats, `(..., pairs)` each.

        A position that is NaN, or whose magnitude exceeds 2**24, gives NaN.
        """
        whole, fraction, valid = split_positions(positions, exact=self.dtype)
        return add_angles(
            self.compose(ops.floor_divide(whole, _BASE), fraction, valid),
            self.look_up(_LOW + ops.mod(whole, _BASE)),
        )

    def compose(self, high: Any, fraction: Any, valid: Any) -> Any:
        """Returns sine and cosine of the angles of 64 * high + fraction.

        `high` are integers in +-(2**18 + 1), `fraction` floats in [0, 1) or
        None. Where not `valid`, the result is NaN.
        """
        xp = self._xp
        digits = xp.minimum(xp.abs(high), _MOST + 1)
        top = xp.where(
            valid, _TOP + xp.floor_divide(digits, _BASE**2), _INVALID
        )
        upper = _UPPER + xp.mod(xp.floor_divide(digits, _BASE), _BASE)
        middle = _MIDDLE + xp.mod(digits, _BASE)
        sine, cosine = functools.reduce(
            add_angles, map(self.look_up, (top, upper, middle))
        )
        sine = xp.where(xp.expand_dims(high < 0, -1), -sine, sine)
        if fraction is None:
            return sine, cosine
        rates, _ = self.look_up(ops.where(valid, _FREQUENCIES, _INVALID))
        angle = ops.expand_dims(ops.cast(fraction, self.dtype), -1) * rates
        return add_angles((sine, cosine), (ops.sin(angle), ops.cos(angle)))

    def look_up(self, rows: Any) -> tuple[Any, Any]:
        """Returns sines and cosines of table rows: (...) -> (..., pairs)."""
        if self._xp is np:
            gathered = np.take(self._table, rows, axis=0)
        else:
            gathered = rows_of(self._table, rows)
        sine, cosine = self._xp.split(gathered, 2, axis=-1)
        return sine, cosine


@dataclasses.dataclass(frozen=True)
class Sinusoids:
    """Exact sinusoidal encodings of one width, base and layout.

    The dtype of the arithmetic is `"float32"` or `"float64"`.
    """

    dim: int
    _: dataclasses.KW_ONLY
    max_wavelength: float
    layout: str
    dtype: str = "float32"

    @property
    def rates(self) -> np.ndarray:
        """The radians per position of each pair."""
        return frequencies(self.dim, max_wavelength=self.max_wavelength)

    def range(self, start_index: Any, length: Any) -> Any:
        """Returns encodings of `start_index ... start_index + length - 1`.

        Only the starts of blocks of 64 are combined from their digits. The
        full size needs one addition, E(64 h + l) = E(64 h) cos(l w) +
        E'(64 h) sin(l w), where E' has (cosine, -sine) where E has (sine,
        cosine); and for a dynamic start, one sum with NaN for positions out of
        range.

        Args:
            start_index: Integer scalar or `(batch,)`.
            length: Integer, or an integer scalar tensor, of at most 2**23.

        Returns:
            `(length, dim)`, or `(batch, length, dim)` for a `(batch,)` start.
            A position whose magnitude exceeds 2**24 is encoded as NaN.
        """
        is_known = isinstance(length, int)
        xp: Any = ops
        in_range = None
        if isinstance(start_index, int):
            start = np.array(max(-_FAR, min(start_index, _FAR)), "int32")
            end = start + (length if is_known else _LONGEST) - 1
            if start < -LIMIT or end > LIMIT:
                return self.at(plain_positions(start, length))
            if is_known:
                # Static sizes: computed now, as a constant of the graph.
                xp = np
        else:
            start = _clipped(start_index, _FAR)
            positions = plain_positions(start, length)
            in_range = ops.expand_dims(ops.abs(positions) <= LIMIT, -1)
        phases = Phases(self.rates, dtype=self.dtype, xp=xp)
        rows = min(length, _BASE) if is_known else _BASE
        # By steps, not by a count of blocks: mobile runtimes know the size of
        # such a range in advance.
        block = xp.floor_divide(
            xp.arange(0, length, _BASE, dtype="int32"), _BASE
        )
        row = xp.arange(rows, dtype="int32")
        if not is_known:
            # Plus 0, in a way that no converter folds: folding would make a
            # float table of these rows, which quantization rounds.
            row = row + ops.sum(block[:1])  # empty for a length of 0
        start = xp.expand_dims(start, -1)
        # Shapes: (..., blocks, half) and (..., rows, half).
        first, rest = xp.floor_divide(start, _BASE), xp.mod(start, _BASE)
        high = first + block
        inside = xp.logical_and(high >= -_MOST - 1, high <= _MOST)
        sine, cosine = phases.compose(high, None, inside)
        row_sine, row_cosine = phases.look_up(_LOW + rest + row)

        def laid_out(sine: Any, cosine: Any, axis: int) -> Any:
            wide = columns(
                sine, cosine, dim=self.dim, layout=self.layout, xp=xp
            )
            return ops.expand_dims(wide, axis)

        # (..., blocks, 1, dim) with (..., 1, rows, dim)
        encoding = laid_out(sine, cosine, -2) * laid_out(
            row_cosine, row_cosine, -3
        ) + laid_out(cosine, -sine, -2) * laid_out(row_sine, row_sine, -3)
        outer = ops.shape(encoding)[:-3]
        # With a size of 0 in `outer`, -1 would be undefined.
        count = ops.shape(block)[0] * rows if outer else -1
        encoding = ops.reshape(encoding, (*outer, count, self.dim))
        if not is_known or (length > _BASE and length % _BASE):
            # By `slice`: mobile runtimes copy an index number by number.
            encoding = ops.slice(
                encoding, [0] * len(encoding.shape), (*outer, length, self.dim)
            )
        if in_range is None:
            return encoding
        # The last block may hold positions both in and out of range.
        zero = ops.zeros((), self.dtype)
        return encoding + ops.where(in_range, zero, float("nan"))

    def at(self, positions: Any) -> Any:
        """Returns encodings of any positions, `(..., dim)`, as `range` does."""
        phases = Phases(self.rates, dtype=self.dtype)
        return columns(*phases.at(positions), dim=self.dim, layout=self.layout)


def columns(
    sine: Any, cosine: Any, *, dim: int, layout: str, xp: Any = ops
) -> Any:
    """Arranges sines and cosines as columns: (..., pairs) -> (..., dim).

    An odd `dim` leaves the last cosine out.
    """
    odd = dim % 2
    if layout == "halves":
        cosine = _first(cosine, dim // 2) if odd else cosine
        return xp.concatenate([sine, cosine], axis=-1)
    pairs = xp.stack([sine, cosine], axis=-1)
    wide = xp.reshape(pairs, (*outer_sizes(sine), dim + odd))
    return _first(wide, dim) if odd else wide


def add_angles(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Adds angles: (sin a, cos a), (sin b, cos b) -> (sin, cos) of a + b."""
    (sin_a, cos_a), (sin_b, cos_b) = a, b
    return sin_a * cos_b + cos_a * sin_b, cos_a * cos_b - sin_a * sin_b


def _first(x: Any, count: int) -> Any:
    # Without an ellipsis, which LiteRT's slices lack.
    return x[(*[slice(None)] * (len(x.shape) - 1), slice(count))]


def split_positions(
    positions: Any, *, exact: str = "float32"
) -> tuple[Any, Any, Any]:
    """Splits positions: (whole part as int32, fraction or None, validity).

    `exact` is the lowest dtype to split floats in: in float32, the fraction of
    -1e-9 is 1.
    """
    if not hasattr(positions, "dtype"):
        positions = np.asarray(positions)  # a list of floats stays float64
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if "float" not in dtype:
        whole = _clipped(positions, LIMIT + 1)
        return whole, None, ops.abs(whole) <= LIMIT
    if dtype != "float64":
        positions = ops.cast(positions, exact)
    # In two steps of 2**12, since float16 constants of a file could not hold
    # 2**24. False for NaN.
    valid = ops.abs(positions / 4096) <= 4096
    positions = ops.where(valid, positions, ops.zeros_like(positions))
    floor = ops.floor(positions)
    return ops.cast(floor, "int32"), positions - floor, valid


def _clipped(positions: Any, most: int) -> Any:
    """Returns integers of any dtype, clipped to +-`most`, as int32."""
    positions = ops.convert_to_tensor(positions)
    dtype = keras.backend.standardize_dtype(positions.dtype)
    if dtype in ("uint32", "uint64"):  # values may exceed int32
        positions = ops.where(positions > most, most, positions)
    if dtype != "int64":
        positions = ops.cast(positions, "int32")
    return ops.cast(ops.clip(positions, -most, most), "int32")


@functools.lru_cache(maxsize=16)
def _table(rates_as_bytes: bytes, dtype: str) -> np.ndarray:
    """Returns sines and cosines of digits, then the rates: (323, 2 pairs).

    The argument is the bytes of float64 numbers, which can be a cache key.
    """
    rates = np.frombuffer(rates_as_bytes)
    pairs = len(rates)
    table = np.empty((_FREQUENCIES + 1, 2 * pairs), dtype)
    first = 0
    for unit, count in _DIGITS:
        turns = _turns(rates * unit, count)
        table[first : first + count, :pairs] = turns.imag
        table[first : first + count, pairs:] = turns.real
        first += count
    table[_INVALID] = np.nan
    table[_FREQUENCIES] = np.tile(rates, 2)
    table.flags.writeable = False
    return table


def _turns(angles: np.ndarray, count: int) -> np.ndarray:
    """Returns cos(k a) + i sin(k a) for k below count: (count, pairs).

    Computes sines only for powers of two, and multiplies for other k: a tenth
    of the time of computing all sines, with errors of about 1e-15.
    """
    turns = np.empty((count, len(angles)), complex)
    turns[0] = 1
    known = 1
    while known < count:
        turn = np.exp(1j * (angles * known))
        new = turns[known : 2 * known]
        np.multiply(turns[: len(new)], turn, out=new)
        known *= 2
    return turns
