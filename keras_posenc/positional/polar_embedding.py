"""Polar positions inside attention, PoPE, as a layer."""

from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_max_wavelength
from keras_posenc.ops.arguments import check_built_for
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.named import config_of
from keras_posenc.ops.polar import polar_vectors, turned_back
from keras_posenc.ops.positional_encoding import frequencies
from keras_posenc.ops.sinusoids import Phases
from keras_posenc.positional.attention_position import AttentionPosition


@keras.saving.register_keras_serializable(package="keras_posenc")
class PolarEmbedding(AttentionPosition):
    """Compares contents by lengths of vectors, and positions by their angles.

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

    Example:
    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> position = kp.positions.PolarEmbedding()
    >>> layer = kp.SelfAttention(4, attention_position=position)
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

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
        self.max_wavelength = check_max_wavelength(max_wavelength)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)

    def build(self, input_shape: Any) -> None:
        _, heads, _, width = input_shape
        self.phase_bias = self.add_weight(
            shape=(heads, width),
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            name="bias",
        )
        self.built = True

    def rotate(self, x: Any, positions: Any, known: Any = None) -> Any:
        heads, width = self.phase_bias.shape
        check_built_for(self, "heads", heads, x.shape[1])
        dtype = arithmetic_dtype(x)
        sine, cosine = turned_back(
            self._phases(x, positions, known),
            ops.expand_dims(ops.cast(self.phase_bias, dtype), 1),
        )
        # A softplus is no product: the scale of queries comes after it.
        scale = width**0.5
        wide = ops.cast(x, dtype) * scale
        return polar_vectors(wide, sine=sine, cosine=cosine) / scale

    def rotate_keys(self, x: Any, positions: Any, known: Any = None) -> Any:
        sine, cosine = self._phases(x, positions, known)
        wide = ops.cast(x, arithmetic_dtype(x))
        return polar_vectors(wide, sine=sine, cosine=cosine)

    def _phases(
        self, x: Any, positions: Any, known: dict[Any, Any] | None
    ) -> tuple[Any, Any]:
        """Returns sines and cosines of the positions: (batch, 1, seq, dim)."""
        dtype, width = arithmetic_dtype(x), x.shape[-1]
        check_built_for(self, "width", self.phase_bias.shape[1], width)
        known = {} if known is None else known
        # The layer itself is kept too: another one could get its id.
        key = id(self), dtype
        if key not in known:
            rates = frequencies(2 * width, max_wavelength=self.max_wavelength)
            phases = Phases(rates, dtype=dtype).at(positions)
            known[key] = self, [ops.expand_dims(each, 1) for each in phases]
        sine, cosine = known[key][1]
        return sine, cosine

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}
