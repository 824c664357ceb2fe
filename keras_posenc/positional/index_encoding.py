"""The simplest encodings: the index, and the index divided by the length."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.plain_export import where_valid
from keras_posenc.ops.positions import (
    plain_positions,
    segment_lengths,
    token_counts,
)
from keras_posenc.ops.sinusoids import split_positions
from keras_posenc.positional._merged_encoding import TokenEncoding


@keras.saving.register_keras_serializable(package="keras_posenc")
class IndexEncoding(TokenEncoding):
    """Adds the index of each token, maybe divided by the length, to the inputs.

    One number for each token, for comparison only. The index grows with the
    length and soon dominates the embedding. The index divided by the length
    puts neighbours at a distance that depends on the length. The sinusoid of
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
        `(batch, seq, dim)` in the layer's compute dtype, `(batch, seq, dim +
        1)` with `merge_mode="concat"`, `(batch, seq, 1)` with None. The mask
        passes through.

    Raises:
        ValueError: An invalid argument; inputs that are not of rank 3, not of
            a float dtype, or of unknown or zero width.

    Example:
    >>> import keras_posenc as kp
    >>> from keras import ops
    >>> layer = kp.positions.IndexEncoding(normalize=True, merge_mode=None)
    >>> mask = ops.convert_to_tensor([[True, True, True, True, False]])
    >>> shares = layer(ops.ones((1, 5, 8)), mask=mask)
    >>> ops.convert_to_numpy(shares)[0, :4, 0].tolist()
    [0.0, 0.25, 0.5, 0.75]

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

    def encode(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> Any:
        seq, dtype = ops.shape(inputs)[1], self.exact_dtype()
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
        return ops.expand_dims(where_valid(valid, index, nan=nan), -1)
