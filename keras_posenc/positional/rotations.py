"""Positions that rotate or scale queries and keys, besides rotary ones."""

import functools
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_integer, check_not_negative
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.attention import swap_heads
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.named import keep_arguments
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.rotary import rotate_pairs
from keras_posenc.ops.sinusoids import Phases, add_angles, split_positions
from keras_posenc.ops.tables import kept_table, rows_of
from keras_posenc.positional.attention_position import OwnPosition
from keras_posenc.positional.biases import log_gates


@keras.saving.register_keras_serializable(package="keras_posenc")
class XPosEmbedding(OwnPosition):
    """Rotates pairs of features, and lets their scores fall with the distance.

    >>> import keras_posenc as kp
    >>> position = kp.positions.XPosEmbedding()
    >>> layer = kp.SelfAttention(4, attention=position)

    As `RotaryEmbedding`, but what pair `j` of `pairs` adds to the score of a
    query and a key `d` tokens before it is multiplied by
    `((j / pairs + 0.4) / 1.4) ** (d / scale_base)`: fast pairs fade first. For
    causal attention: with later keys the scores would grow.

    Queries are scaled down along the text and keys up, which limits positions:
    with the `scale_base` of 512, to -4,096 ... 53,759 (-8 to 105 times
    `scale_base`); one beyond gives NaN. In float16 to -1,536 ... 4,095 (-3 to 8
    times).

    Args:
        scale_base: Over how many tokens a pair decays to its factor; at most
            2**24.
        max_wavelength: The base of the progression of wavelengths, at least 1.
        layout: Which features are pair `j`: `"halves"` (columns `j` and
            `dim / 2 + j`) or `"interleaved"` (`2 j` and `2 j + 1`, as in the
            published code).
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; an odd number of features; attention
            that is not causal.

    References:
        - [Sun et al., 2022](https://arxiv.org/abs/2212.10554)
    """

    causal_only = True

    def __init__(
        self,
        scale_base: int = 512,
        *,
        max_wavelength: float = 10000,
        layout: str = "halves",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        if self.scale_base > 2**24:
            raise ValueError(
                "`scale_base` must be at most 2**24, where positions end. "
                f"Received: scale_base={scale_base!r}"
            )

    def build(self, input_shape: Any) -> None:
        self.check_pairs(input_shape[-1])

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate(x, positions, known, sign=1)

    def rotate_keys(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate(x, positions, known, sign=-1)

    def _rotate(self, x: Any, positions: Any, known: Any, *, sign: int) -> Any:
        dtype, width = arithmetic_dtype(x), x.shape[-1]
        is_float16 = keras.backend.standardize_dtype(x.dtype) == "float16"

        def phases() -> Any:
            rates = frequencies(width, max_wavelength=self.max_wavelength)
            return Phases(rates, dtype=dtype).at(positions)

        def scaled() -> Any:
            scale = _decay_scales(
                positions,
                pairs=width // 2,
                scale_base=self.scale_base,
                sign=sign,
                dtype=dtype,
                is_float16=is_float16,
            )
            # (batch, seq, pairs) -> (batch, 1, seq, pairs)
            turn = self.shared(known, (width, dtype), phases)
            return [ops.expand_dims(scale * each, 1) for each in turn]

        key = width, dtype, sign, is_float16
        sine, cosine = self.shared(known, key, scaled)
        return rotate_pairs(
            ops.cast(x, dtype), sine=sine, cosine=cosine, layout=self.layout
        )


# The position whose scale is 1, on which scores do not depend, and how far from
# it others may be, in units of `scale_base`. What is scaled must stay within
# the normal numbers of its dtype: the fastest decay is 0.4 / 1.4, and its power
# 2**101, or 2**9 in float16. Texts begin at 0, so that most is after it.
_CENTER, _REACH = 48, 56
_CENTER_OF_FLOAT16, _REACH_OF_FLOAT16 = 2, 5


def _decay_scales(
    positions: Any,
    *,
    pairs: int,
    scale_base: int,
    sign: int,
    dtype: str,
    is_float16: bool,
) -> Any:
    """Returns decay ** (sign * (position / scale_base - center)).

    The power of the whole number of units comes from a table, and the rest, of
    at most one unit, is computed: so errors do not grow with the position.
    `(batch, seq, pairs)`; NaN for a position that is out of reach.
    """
    center, reach = _CENTER, _REACH
    if is_float16:
        center, reach = _CENTER_OF_FLOAT16, _REACH_OF_FLOAT16
    whole, fraction, valid = split_positions(positions, exact=dtype)
    unit = ops.floor_divide(whole, scale_base) - center
    valid = ops.logical_and(valid, ops.abs(unit) <= reach)
    rest = ops.cast(ops.mod(whole, scale_base), dtype)
    if fraction is not None:
        rest = rest + ops.cast(fraction, dtype)
    rows = _powers(pairs, sign, reach, dtype)
    invalid, log = len(rows) - 2, len(rows) - 1
    table = ops.convert_to_tensor(kept_table(rows))
    powers = rows_of(table, ops.where(valid, unit + reach, invalid))
    logarithms = rows_of(table, ops.where(valid, log, invalid))
    return powers * ops.exp(ops.expand_dims(rest, -1) / scale_base * logarithms)


@functools.lru_cache(maxsize=16)
def _powers(pairs: int, sign: int, reach: int, dtype: str) -> np.ndarray:
    """Returns powers of whole units, NaN, and logarithms, in rows."""
    decays = (np.arange(pairs) / pairs + 0.4) / 1.4
    units = np.arange(-reach, reach + 1)[:, np.newaxis]
    rows = [decays ** (sign * units), decays * np.nan, sign * np.log(decays)]
    table = np.vstack(rows).astype(dtype)
    table.flags.writeable = False
    return table


@keras.saving.register_keras_serializable(package="keras_posenc")
class FourierEmbedding(OwnPosition):
    """Rotates pairs by sums of frequencies, without those too slow to learn.

    >>> import keras_posenc as kp
    >>> position = kp.positions.FourierEmbedding(512, num_key_value_heads=2)
    >>> attention = kp.Attention(position, num_key_value_heads=2)
    >>> layer = kp.SelfAttention(4, attention=attention)

    As `RotaryEmbedding(layout="halves")`, with two changes. Pairs whose
    frequency turns less than once in `training_length` are not rotated. In each
    of the others the sine is a sum of the sines of all their frequencies, with
    coefficients for each head, and the cosine one of their cosines. The
    coefficients are those of a plain rotation plus random numbers. They are
    saved with the layer and not trained, as in the published code.

    Scores depend on positions, and not on differences alone. Without random
    numbers (`gain=0`) they do not.

    Args:
        training_length: How many tokens texts in training have. Longer texts
            need no other value.
        num_key_value_heads: How many heads have coefficients of their own: as
            many as `SelfAttention` has for keys, or a divisor; None for as many
            as queries have.
        gain: The size of the random numbers: their standard deviation is
            `gain * sqrt(2 / (pairs * (pairs + num_key_value_heads)))`.
        max_wavelength: The base of the progression of wavelengths, at least 1.
        seed: An integer that the random numbers follow from, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument; an odd number of features, or another
            one than built for; a `training_length` in which no frequency
            turns; a number of heads that `num_key_value_heads` does not divide.

    References:
        - [Hua et al., 2024](https://arxiv.org/abs/2412.17739), with the
          initial values of its published code, and pairs that are not rotated
          as in [vLLM](https://github.com/vllm-project/vllm)
    """

    is_absolute = True

    def __init__(
        self,
        training_length: int,
        *,
        num_key_value_heads: int | None = None,
        gain: float = 0.3,
        max_wavelength: float = 10000,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())
        self.gain = check_not_negative("gain", gain)
        self.seed = None if seed is None else check_integer("seed", seed)

    def build(self, input_shape: Any) -> None:
        _, heads, _, width = input_shape
        self.check_pairs(width)
        self._check_heads(heads)
        pairs = len(self._rates(width))
        if not pairs:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': no frequency turns once "
                "in `training_length`, which must be at least 7. "
                f"Received: training_length={self.training_length}"
            )
        groups = self.num_key_value_heads or heads
        deviation = self.gain * (2 / (pairs * (pairs + groups))) ** 0.5
        noise = keras.initializers.RandomNormal(0.0, deviation, self.seed)

        def initial(shape: Any, dtype: Any = None) -> Any:
            return ops.eye(pairs, dtype=dtype) + noise(shape, dtype)

        self._width = width
        self.coefficients = self.add_weight(
            shape=(2, groups, pairs, pairs),
            initializer=initial,
            trainable=False,
            name="coefficients",
        )

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        heads, dtype = x.shape[1], arithmetic_dtype(x)
        check_built_for(self, "width", self._width, x.shape[-1])
        self._check_heads(heads)

        def mixed() -> Any:
            phases = Phases(self._rates(self._width), dtype=dtype)
            coefficients = ops.cast(self.coefficients, dtype)
            return _mixed(*phases.at(positions), coefficients, heads)

        sine, cosine = self.shared(known, (heads, dtype), mixed)
        pairs, half = sine.shape[-1], self._width // 2
        wide = ops.cast(x, dtype)
        if pairs == half:
            return rotate_pairs(wide, sine=sine, cosine=cosine, layout="halves")
        # Pair `j` is the columns `j` and `half + j`.
        a, rest_of_a, b, rest_of_b = ops.split(
            wide, [pairs, half, half + pairs], axis=-1
        )
        turned_a = a * cosine - b * sine
        turned_b = a * sine + b * cosine
        return ops.concatenate(
            [turned_a, rest_of_a, turned_b, rest_of_b], axis=-1
        )

    def _check_heads(self, heads: int) -> None:
        groups = self.num_key_value_heads or heads
        if self.built:
            groups = self.coefficients.shape[1]
        if heads % groups:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' has coefficients for "
                f"{groups} heads, which do not divide the {heads} heads of "
                "the queries or keys. Give FourierEmbedding "
                f"num_key_value_heads={heads}"
            )

    def _rates(self, width: int) -> np.ndarray:
        """Returns the frequencies that turn in a text of training."""
        rates = frequencies(width, max_wavelength=self.max_wavelength)
        return rates[rates >= 2 * math.pi / self.training_length]


def _mixed(
    sine: Any, cosine: Any, coefficients: Any, heads: int
) -> tuple[Any, Any]:
    """Mixes sines, and cosines, of all frequencies, for each head.

    Two of `(batch, seq, pairs)` become two of `(batch, heads, seq, pairs)`, by
    coefficients `(2, groups, pairs, pairs)`: column `j` holds the share of each
    frequency in pair `j`.
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


@keras.saving.register_keras_serializable(package="keras_posenc")
class PolarEmbedding(OwnPosition):
    """Compares contents by lengths of vectors, and positions by their angles.

    >>> import keras_posenc as kp
    >>> position = kp.positions.PolarEmbedding()
    >>> layer = kp.SelfAttention(4, attention=position)

    Each of `dim` features of a query at position `t` and of a key at position
    `s` adds `softplus(q) * softplus(k) * cos((s - t) * rate + bias)` to the
    score, where `rate` is `max_wavelength ** (-j / dim)` for feature `j`, and
    `bias` is learned for each feature and head, between `-2 * pi` and 0.
    Rotary embeddings rotate pairs instead: there contents have angles too, and
    so change which distance fits best.

    Scores are products of vectors twice as wide as the head: they take twice
    the time, and a cache of keys twice the memory. Values stay as they are.
    JAX's and PyTorch's fused attention is not used. The bias is applied to the
    queries, so with grouped heads each query has its own.

    Args:
        max_wavelength: The base of the progression of wavelengths, at least 1.
        bias_initializer: Initializer of the bias. Values outside of its range
            count as the nearest one inside.
        bias_regularizer: Regularizer of the bias, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of another width or number
            of heads than built for.

    References:
        - [Gopalakrishnan et al., 2025](https://arxiv.org/abs/2509.10534)
          (PoPE), with the range of the bias as in
          [PoPE-pytorch](https://github.com/lucidrains/PoPE-pytorch)
    """

    widening = 2

    def __init__(
        self,
        *,
        max_wavelength: float = 10000,
        bias_initializer: Any = "zeros",
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def build(self, input_shape: Any) -> None:
        _, heads, _, width = input_shape
        self.phase_bias = add_weight_of(self, "bias", (heads, width))

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        heads, width = self.phase_bias.shape
        check_built_for(self, "heads", heads, x.shape[1])
        dtype = arithmetic_dtype(x)
        bias = ops.expand_dims(ops.cast(self.phase_bias, dtype), 1)
        bias = ops.clip(bias, -2 * math.pi, 0.0)
        turned = add_angles(
            self._phases(x, positions, known), (-ops.sin(bias), ops.cos(bias))
        )
        # A softplus is no product: the scale of queries comes after it.
        scale = width**0.5
        return _polar_vectors(ops.cast(x, dtype) * scale, *turned) / scale

    def rotate_keys(self, x: Any, positions: Any, known: Any = None) -> Any:
        phases = self._phases(x, positions, known)
        return _polar_vectors(ops.cast(x, arithmetic_dtype(x)), *phases)

    def _phases(self, x: Any, positions: Any, known: Any) -> tuple[Any, Any]:
        """Returns sines and cosines of the positions: (batch, 1, seq, dim)."""
        dtype, width = arithmetic_dtype(x), x.shape[-1]
        check_built_for(self, "width", self.phase_bias.shape[1], width)

        def made() -> Any:
            rates = frequencies(2 * width, max_wavelength=self.max_wavelength)
            phases = Phases(rates, dtype=dtype).at(positions)
            return [ops.expand_dims(each, 1) for each in phases]

        sine, cosine = self.shared(known, (dtype,), made)
        return sine, cosine


def _polar_vectors(x: Any, sine: Any, cosine: Any) -> Any:
    """Returns vectors of two coordinates for each feature: (..., 2 * dim).

    Their length is the softplus of the feature, their angle the given one.
    """
    lengths = -log_gates(-x)  # the softplus
    return ops.concatenate([lengths * cosine, lengths * sine], axis=-1)


@keras.saving.register_keras_serializable(package="keras_posenc")
class AttentionTemperature(OwnPosition):
    """Multiplies queries by a factor that grows slowly with their position.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> rotary = kp.RotaryEmbedding(max_wavelength=500_000)
    >>> kinds = 3 * [rotary] + [kp.positions.AttentionTemperature()]
    >>> encoder = kp.TransformerEncoder(  # as in Llama 4
    ...     4, num_heads=4, attention=kinds
    ... )
    >>> x = np.ones((2, 10, 64), "float32")
    >>> tuple(encoder(x, use_causal_mask=True).shape)
    (2, 10, 64)

    A softmax over many keys is flat; the factor
    `1 + attn_scale * log(1 + floor((position + 1) / floor_scale))` keeps it
    sharp in texts longer than `floor_scale`. Keys stay as they are, so the
    order of the tokens is left to another position (`CombinedPosition`), to
    another block, or to the causal mask. Positions below 0 count as 0.

    Args:
        attn_scale: The growth with the logarithm.
        floor_scale: So many positions in a row have the same factor, which is
            1 for all but the last one of the first `floor_scale`.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    References:
        - Llama 4's `attn_temperature_tuning`, in Hugging Face's transformers.
    """

    is_absolute = True
    counts_keys = True

    def __init__(
        self,
        attn_scale: float = 0.1,
        *,
        floor_scale: float = 8192.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def rotate(self, x: Any, positions: Any) -> Any:
        dtype = arithmetic_dtype(x)
        count = _counts(positions, dtype)
        steps = ops.floor(count / self.floor_scale)
        # Compilers multiply by the reciprocal, which may be one step off.
        rest = count - steps * self.floor_scale
        steps = steps + ops.cast(rest >= self.floor_scale, dtype)
        steps = steps - ops.cast(rest < 0, dtype)
        return ops.cast(x, dtype) * (1 + self.attn_scale * ops.log(1 + steps))

    def rotate_keys(self, x: Any, positions: Any) -> Any:
        return x


@keras.saving.register_keras_serializable(package="keras_posenc")
class ScalableSoftmax(OwnPosition):
    """Multiplies scores by the logarithm of the number of keys.

    >>> import keras_posenc as kp
    >>> kinds = ["rotary", kp.positions.ScalableSoftmax()]
    >>> position = kp.positions.CombinedPosition(kinds)
    >>> layer = kp.SelfAttention(4, attention=position)

    The factor is `s * log(n)`, with a learned `s` for each head: then the
    largest weight does not fade in longer texts. `n` is the position of the
    query plus 1, the number of keys that it sees in causal attention. Keys stay
    as they are, so the order of the tokens is left to another position
    (`CombinedPosition`), or to the causal mask. Positions below 0 count as 0.

    Args:
        initial_scale: The initial `s`; 0.43 in the paper's first figure.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Raises:
        ValueError: An invalid argument, or queries of another number of heads
            than built for.

    References:
        - [Nakanishi, 2025](https://arxiv.org/abs/2501.19399)
    """

    is_absolute = True
    counts_keys = True

    def __init__(self, initial_scale: float = 0.43, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        keep_arguments(self, locals())

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(
            shape=(input_shape[1],),
            initializer=keras.initializers.Constant(self.initial_scale),
            name="scale",
        )

    def rotate(self, x: Any, positions: Any) -> Any:
        check_built_for(self, "heads", self.scale.shape[0], x.shape[1])
        dtype = arithmetic_dtype(x)
        scale = ops.reshape(ops.cast(self.scale, dtype), (1, -1, 1, 1))
        return ops.cast(x, dtype) * (scale * ops.log(_counts(positions, dtype)))

    def rotate_keys(self, x: Any, positions: Any) -> Any:
        return x


def _counts(positions: Any, dtype: str) -> Any:
    """Returns how many tokens there are up to each one: (batch, 1, seq, 1)."""
    positions = ops.expand_dims(ops.cast(positions, dtype), (1, 3))
    # Not a maximum: that of NaN is a number in some runtimes.
    return 1 + ops.where(positions < 0, ops.zeros_like(positions), positions)
