"""Fourier positions inside attention, FoPE, as a layer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import (
    check_integer,
    check_max_wavelength,
    check_not_negative,
    check_positive_int,
)
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.fourier import mixed, trained_frequencies
from keras_posenc.ops.named import config_of
from keras_posenc.ops.rotary import rotate_pairs
from keras_posenc.ops.sinusoids import Phases
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class FourierEmbedding(AttentionPosition):
    """Rotates pairs by sums of frequencies, without those too slow to learn.

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

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.FourierEmbedding(512, num_key_value_heads=2)
    >>> layer = kp.SelfAttention(
    ...     4, num_key_value_heads=2, attention_position=position
    ... )
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

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
        self.training_length = check_positive_int(
            "training_length", training_length
        )
        self.num_key_value_heads = num_key_value_heads
        if num_key_value_heads is not None:
            self.num_key_value_heads = check_positive_int(
                "num_key_value_heads", num_key_value_heads
            )
        self.gain = check_not_negative("gain", gain)
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.seed = None if seed is None else check_integer("seed", seed)

    def build(self, input_shape: Any) -> None:
        _, heads, _, width = input_shape
        if not width or width % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' rotates features in "
                "pairs: their number must be known, even and above 0. Received:"
                f" width {width} of one head"
            )
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
        self.built = True

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        known = {} if known is None else known
        heads, dtype = x.shape[1], arithmetic_dtype(x)
        check_built_for(self, "width", self._width, x.shape[-1])
        self._check_heads(heads)
        # The layer itself is kept too: another one could get its id.
        key = id(self), heads, dtype
        if key not in known:
            phases = Phases(self._rates(self._width), dtype=dtype)
            known[key] = (
                self,
                mixed(
                    *phases.at(positions),
                    coefficients=ops.cast(self.coefficients, dtype),
                    heads=heads,
                ),
            )
        sine, cosine = known[key][1]
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
        """Raises `ValueError` unless each head has coefficients."""
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
        return trained_frequencies(
            width,
            max_wavelength=self.max_wavelength,
            training_length=self.training_length,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
