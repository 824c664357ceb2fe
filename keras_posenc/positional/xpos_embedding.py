"""Rotary embeddings with a decay, xPos, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import (
    check_choice,
    check_max_wavelength,
    check_positive_int,
)
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.ops.positional_encoding import LAYOUTS, frequencies
from keras_posenc.ops.rotary import rotate_pairs
from keras_posenc.ops.sinusoids import Phases
from keras_posenc.ops.xpos import decay_scales
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class XPosEmbedding(AttentionPosition):
    """Rotates pairs of features, and lets their scores fall with the distance.

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

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.XPosEmbedding()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> x = np.ones((2, 10, 16), "float32")
    >>> tuple(layer(x, use_causal_mask=True).shape)
    (2, 10, 16)

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
        self.scale_base = check_positive_int("scale_base", scale_base)
        if self.scale_base > 2**24:
            raise ValueError(
                "`scale_base` must be at most 2**24, where positions end. "
                f"Received: scale_base={scale_base!r}"
            )
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.layout = check_choice("layout", layout, LAYOUTS)

    def build(self, input_shape: Any) -> None:
        width = input_shape[-1]
        if not width or width % 2:
            raise ValueError(
                f"{type(self).__name__} '{self.name}' rotates features in "
                "pairs: their number must be known, even and above 0. Received:"
                f" width {width} of one head"
            )
        self.built = True

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate(x, positions, known, sign=1)

    def rotate_keys(self, x: Any, positions: Any, known: Any = None) -> Any:
        return self._rotate(x, positions, known, sign=-1)

    def _rotate(self, x: Any, positions: Any, known: Any, *, sign: int) -> Any:
        known = {} if known is None else known
        dtype, width = arithmetic_dtype(x), x.shape[-1]
        is_float16 = keras.backend.standardize_dtype(x.dtype) == "float16"
        # The layer itself is kept too: another one could get its id.
        turn = id(self), width, dtype
        if turn not in known:
            rates = frequencies(width, max_wavelength=self.max_wavelength)
            known[turn] = self, Phases(rates, dtype=dtype).at(positions)
        scaled = *turn, sign, is_float16
        if scaled not in known:
            scale = decay_scales(
                positions,
                pairs=width // 2,
                scale_base=self.scale_base,
                sign=sign,
                dtype=dtype,
                is_float16=is_float16,
            )
            # (batch, seq, pairs) -> (batch, 1, seq, pairs)
            known[scaled] = [
                ops.expand_dims(scale * each, 1) for each in known[turn][1]
            ]
        sine, cosine = known[scaled]
        return rotate_pairs(
            ops.cast(x, dtype), sine=sine, cosine=cosine, layout=self.layout
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
