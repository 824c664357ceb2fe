"""Encodings of timestamps, and of other large positions."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_choice, check_each, check_positive
from keras_posenc.ops.positions import plain_positions
from keras_posenc.ops.sinusoids import columns
from keras_posenc.ops.turns import (
    angles,
    fixed_turns,
    learnable,
    learned_turns,
    time_digits,
)
from keras_posenc.positional._merged_encoding import TokenEncoding, Tokens

KINDS = ("fixed", "learned", "time2vec")


@keras.saving.register_keras_serializable(package="keras_posenc")
class TimeEncoding(TokenEncoding):
    """Adds sines and cosines of the time of each token to the inputs.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.TimeEncoding(periods=(86400, 604800), merge_mode="concat")
    >>> times = np.array([[1767225600, 1767229200, 1767398400]])  # UTC
    >>> outputs = layer(np.zeros((1, 3, 8), "float32"), positions=times)
    >>> tuple(outputs.shape)
    (1, 3, 12)
    >>> [round(float(x), 6) for x in outputs[0, 1, 8:10]]  # 1 a.m.
    [0.258819, 0.965926]

    For irregular series: times are integers or floats in any unit, such as
    seconds since 1970, of up to 2**48 in magnitude. Angles are computed in
    fixed point from the bits of times and frequencies, so that the encoding of
    a timestamp in 2026 is as accurate as that of 0: an error of at most 6e-7
    in float32, plus one rounding in float16 and bfloat16.

    float32 holds whole seconds only up to 2**24, half a year. Give timestamps
    as integers, in a unit as small as needed, or as float64 if the runtime has
    it. `dates.astype("datetime64[s]").astype("int64")` turns NumPy's dates into
    seconds.

    Args:
        kind: `"fixed"`: sines and cosines of the given periods. `"learned"`:
            the same initially, with frequencies that are trained.
            `"time2vec"`: one linear column, then `sin(2 pi f t + phase)` with
            frequencies and phases that are trained.
        min_period: Shortest period, in the unit of the positions.
        max_period: Longest period. Those between are a geometric progression.
        periods: The periods themselves, such as `(3600, 86400, 604800)`,
            instead of a progression. The encoding then has two columns for
            each (`"time2vec"`: one, and the linear one).
        layout: `"interleaved"` (sine, cosine, sine, ...) or `"halves"`. Not
            with `"time2vec"`, which has no cosines.
        merge_mode: `"add"` to the inputs, `"concat"` after them, or None for
            the encoding alone.
        encoding_dim: Width of a concatenated encoding; by default the inputs'
            own. Only with `merge_mode="concat"`, and not with `periods`.
        skip_masked: As in `PositionalEncoding`, where times are counted.
        dropout: Rate of the dropout after the merge, in [0, 1).
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: The times: integers or floats, `(seq,)` or `(batch, seq)`.
            A time that is NaN or beyond 2**48 in magnitude is encoded as NaN;
            that of a masked token always as 0. Times may be negative. By
            default tokens are counted, as in `PositionalEncoding`. Not
            together with `start_index` or `skip_masked`.
        start_index: As in `PositionalEncoding`, like `segment_ids` and `mask`.

    Returns:
        `(batch, seq, dim)` in the layer's compute dtype, wider by the
        encoding's width with `merge_mode="concat"`. The mask passes through.

    The weights of the last two kinds are `frequencies`, in turns per unit of
    position, and for `"time2vec"` also `phases` in radians and the slope and
    offset `linear`. The gradient of a frequency grows with the time: to train
    frequencies, let times start at 0 for each series instead of in 1970.

    Raises:
        ValueError: An invalid argument; inputs that are not of rank 3, not of
            a float dtype, or of unknown or zero width, or of another width
            than that of the `periods` that are added to them.

    References:
        - [Kazemi et al., 2019](https://arxiv.org/abs/1907.05321) (Time2Vec)
        - [Tancik et al., 2020](https://arxiv.org/abs/2006.10739) (Fourier
          features)
        - [Li et al., 2021](https://arxiv.org/abs/2106.02795) (learned ones)
    """

    def __init__(
        self,
        kind: str = "fixed",
        *,
        min_period: float = 1.0,
        max_period: float = 3155760000.0,
        periods: Sequence[float] | None = None,
        layout: str = "interleaved",
        merge_mode: str | None = "add",
        encoding_dim: int | None = None,
        skip_masked: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())
        self.kind = check_choice("kind", kind, KINDS)
        if self.max_period < self.min_period:
            raise ValueError(
                "`max_period` must be at least `min_period`. Received: "
                f"min_period={min_period!r}, max_period={max_period!r}"
            )
        self.periods = check_each(
            "periods", periods, check_positive, "positive finite numbers"
        )
        if kind == "time2vec" and layout != "interleaved":
            raise ValueError(
                "`layout` is for sines and cosines, and cannot be used with "
                f"kind='time2vec'. Received: layout={layout!r}"
            )
        if self.periods is not None and encoding_dim is not None:
            raise ValueError(
                "`encoding_dim` follows from `periods`, and cannot be used "
                f"with them. Received: encoding_dim={encoding_dim!r}, "
                f"periods={self.periods}"
            )

    def build_encoding(self, input_shape: tuple[Any, ...]) -> None:
        self._check_width(input_shape[-1])
        if self.kind == "fixed":
            return
        periods = np.array(self._periods(input_shape[-1]))
        self.frequencies = self.add_weight(
            shape=periods.shape, initializer="zeros", name="frequencies"
        )
        self.frequencies.assign(1 / periods)
        if self.kind == "time2vec":
            self.phases = self.add_weight(
                shape=periods.shape, initializer="zeros", name="phases"
            )
            self.linear = self.add_weight(
                shape=(2,), initializer="zeros", name="linear"
            )
            self.linear.assign([1 / max(self.max_period, *periods), 0])

    def encoding_width(self, dim: int) -> int:
        if self.periods is None:
            return super().encoding_width(dim)
        count = len(self.periods)
        return count + 1 if self.kind == "time2vec" else 2 * count

    def encode(self, inputs: Any, tokens: Tokens) -> Any:
        dim, dtype = inputs.shape[-1], self.exact_dtype()
        times, start_index, *_ = tokens
        if times is None:
            times = plain_positions(start_index, ops.shape(inputs)[1])
        digits = time_digits(times, dtype=dtype)
        if self.kind == "fixed":
            exact = [1 / Fraction(period) for period in self._periods(dim)]
            table = fixed_turns(exact, digits=digits, dtype=dtype)
            angle = angles(digits, table, dtype=dtype)
        else:
            frequencies = ops.cast(self.frequencies, dtype)
            times = ops.cast(times, dtype)
            table = learned_turns(frequencies, digits=digits, dtype=dtype)
            angle = learnable(
                angles(digits, table, dtype=dtype),
                times=times,
                frequencies=frequencies,
            )
        if self.kind != "time2vec":
            return columns(
                ops.sin(angle),
                ops.cos(angle),
                dim=self.encoding_width(dim),
                layout=self.layout,
            )
        waves = ops.sin(angle + ops.cast(self.phases, dtype))
        slope, offset = ops.split(ops.cast(self.linear, dtype), 2)
        line = ops.expand_dims(times, -1) * slope + offset
        return ops.concatenate([line, waves], axis=-1)

    def _periods(self, dim: int) -> Sequence[float]:
        """Lists the period of each pair of columns, or of each wave."""
        if self.periods is not None:
            return self.periods
        width = self.encoding_width(dim)
        count = width - 1 if self.kind == "time2vec" else -(-width // 2)
        ratio = self.max_period / self.min_period
        return [
            self.min_period * ratio ** (i / max(count - 1, 1))
            for i in range(count)
        ]

    def _check_width(self, dim: int) -> None:
        width = self.encoding_width(dim)
        if self.merge_mode == "add" and width != dim:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' adds {width} columns "
                f"for periods={self.periods}, and expects inputs of that "
                f"width. Received: inputs of width {dim}"
            )
        if self.kind == "time2vec" and width < 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' needs a width of at "
                "least 2, one linear column and one wave. Received: "
                f"width {width}"
            )
