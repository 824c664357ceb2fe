"""The sinusoidal encoding as a layer."""

import math
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.positions import (
    plain_positions,
    segment_lengths,
    token_counts,
)
from keras_posenc.ops.sinusoids import Sinusoids, split_positions
from keras_posenc.positional._merged_encoding import TokenEncoding, Tokens


@keras.saving.register_keras_serializable(package="keras_posenc")
class PositionalEncoding(TokenEncoding):
    """Adds the sinusoidal encoding of each position to the inputs.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     kp.PositionalEncoding(dropout=0.1),
    ... ])
    >>> model.output_shape
    (None, None, 64)

    Column `2 j` of the encoding of position `p` is `sin(p w_j)` and column
    `2 j + 1` is `cos(p w_j)`, with `w_j = max_wavelength ** (-2 j / dim)`. The
    layer has no weights and no maximum length. Every position up to 2**24 has
    an error of at most 5.8e-7 in float32 (2.1e-7 below position 4,096; a float
    position that is not whole adds at most 3e-7), plus one rounding in float16
    and bfloat16.

    Args:
        max_wavelength: The base of the geometric progression of wavelengths;
            a finite number of at least 1.
        layout: `"interleaved"` (the paper) or `"halves"` (all sines, then all
            cosines). An odd width has one more sine than cosines.
        merge_mode: `"add"` to the inputs, `"concat"` after them, or None for
            the encoding alone.
        encoding_dim: Width of a concatenated encoding; by default the inputs'
            own. Only with `merge_mode="concat"`.
        scale_inputs: Whether to multiply the inputs by `sqrt(dim)` first, as
            the paper does with its embeddings.
        skip_masked: Whether only unmasked tokens count, so that padding on the
            left has no effect. A masked token has the position of the last
            unmasked one before it. Without a mask it has no effect.
        dropout: Rate of the dropout after the sum, in [0, 1).
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: Integers or floats, `(seq,)` or `(batch, seq)`. A position
            that is NaN or beyond 2**24 in magnitude is encoded as NaN; that of
            a masked token always as 0. Not together with `start_index` or
            `skip_masked`.
        start_index: Position of the first token: an integer or `(batch,)`
            integers, which may be negative. Counted positions have the same
            range.
        segment_ids: Integers of shape `(batch, seq)`. Positions start again
            at `start_index` with each segment of a packed row; segments are
            contiguous. They do not change `positions` that are given. Not
            together with `skip_masked`.
        mask: Bool `(batch, seq)`, True for a token. By default the mask that
            the inputs carry. It decides which tokens count, and which
            `positions` are ignored. Padding of the inputs is encoded as any
            token; NaN there stays there.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the layer's compute dtype; `(batch, seq, dim +
        encoding_dim)` with `merge_mode="concat"`. The mask passes through.

    Raises:
        ValueError: An invalid argument; inputs that are not of rank 3, not of
            a float dtype, or of unknown or zero width.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        *,
        max_wavelength: float = 10000,
        layout: str = "interleaved",
        merge_mode: str | None = "add",
        encoding_dim: int | None = None,
        scale_inputs: bool = False,
        skip_masked: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def input_factor(self, dim: int) -> float:
        return math.sqrt(dim) if self.scale_inputs else 1.0

    def encode(self, inputs: Any, tokens: Tokens) -> Any:
        sinusoids = Sinusoids(
            self.encoding_width(inputs.shape[-1]),
            max_wavelength=self.max_wavelength,
            layout=self.layout,
            dtype=self.exact_dtype(),
        )
        if tokens.positions is None:
            return sinusoids.range(tokens.start_index, ops.shape(inputs)[1])
        return sinusoids.at(tokens.positions)


@keras.saving.register_keras_serializable(package="keras_posenc")
class IndexEncoding(TokenEncoding):
    """Adds the index of each token, maybe divided by the length, to the inputs.

    >>> import keras_posenc as kp
    >>> from keras import ops
    >>> layer = kp.positions.IndexEncoding(normalize=True, merge_mode=None)
    >>> mask = ops.convert_to_tensor([[True, True, True, True, False]])
    >>> shares = layer(ops.ones((1, 5, 8)), mask=mask)
    >>> ops.convert_to_numpy(shares)[0, :4, 0].tolist()
    [0.0, 0.25, 0.5, 0.75]

    One number for each token, for comparison only. The index grows with the
    length and soon dominates the embedding. The index divided by the length
    puts neighbors at a distance that depends on the length. The sinusoid of
    `PositionalEncoding` does neither.

    Args:
        normalize: Whether to divide by the number of unmasked tokens in the
            row, or in the token's segment if there are `segment_ids`. Tokens
            counted from 0 are then in [0, 1). With padding on the left, give
            `skip_masked` too, so that padding is not counted.
        merge_mode: `"add"` to every column of the inputs, `"concat"` as one
            more column, or None for that column alone. Before pre-norm blocks
            use `"concat"`: layer normalization removes what is added to every
            column equally.
        skip_masked: Whether only unmasked tokens count, as in
            `PositionalEncoding`.
        dropout: Rate of the dropout after the merge, in [0, 1).
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `PositionalEncoding`.

    Returns:
        `(batch, seq, dim)` in the layer's compute dtype, with
        `merge_mode="concat"` `(batch, seq, dim + 1)`, with None
        `(batch, seq, 1)`. The mask passes through.

    Raises:
        ValueError: An invalid argument; inputs that are not of rank 3, not of
            a float dtype, or of unknown or zero width.

    References:
        - [Gehring et al., 2017](https://arxiv.org/abs/1705.03122), of which
          this is the simplest form
    """

    def __init__(
        self,
        normalize: bool = False,
        *,
        merge_mode: str | None = "add",
        skip_masked: bool = False,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def encoding_width(self, dim: int) -> int:
        return 1

    def encode(self, inputs: Any, tokens: Tokens) -> Any:
        seq, dtype = ops.shape(inputs)[1], self.exact_dtype()
        positions, start_index, segment_ids, mask = tokens
        if positions is None:
            positions = plain_positions(start_index, seq)
        whole, fraction, valid = split_positions(positions, exact=dtype)
        index = ops.cast(whole, dtype)
        if fraction is not None:
            index = index + ops.cast(fraction, dtype)
        if self.normalize:
            if segment_ids is not None:
                lengths = segment_lengths(segment_ids, mask=mask)
            else:
                lengths = seq if mask is None else token_counts(mask)
            index = index / ops.cast(ops.maximum(lengths, 1), dtype)
        nan = ops.full_like(index, float("nan"))
        return ops.expand_dims(ops.where(valid, index, nan), -1)
