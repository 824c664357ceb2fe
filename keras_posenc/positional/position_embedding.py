"""Learned tables of positions."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import known_values
from keras_posenc.ops.distances import resized_table, rows_at
from keras_posenc.ops.initializers import add_weight_of
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.positions import plain_positions
from keras_posenc.positional._merged_encoding import TokenEncoding, Tokens


@keras.saving.register_keras_serializable(package="keras_posenc")
class PositionEmbedding(TokenEncoding):
    """Adds a learned vector for each position to the inputs.

    >>> import keras
    >>> import keras_posenc as kp
    >>> layer = kp.PositionEmbedding(128)
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     layer,
    ... ])
    >>> layer.count_params()
    8192
    >>> layer.resized(256).count_params()
    16384

    A position outside the table raises `ValueError` wherever it is known: from
    the shapes, and from the values if the layer runs eagerly. In a graph,
    compiled or exported, such a token is encoded as NaN, never as another row;
    if it is masked, it gets the nearest row, or row 0 if `positions` are
    given.

    Args:
        sequence_length: Number of positions in the table, 0 to
            `sequence_length - 1`.
        merge_mode: `"add"` to the inputs, `"concat"` after them, or None for
            the embedding alone.
        encoding_dim: Width of a concatenated embedding; by default the inputs'
            own. Only with `merge_mode="concat"`.
        skip_masked: Whether only unmasked tokens count, as in
            `PositionalEncoding`.
        dropout: Rate of the dropout after the merge, in [0, 1).
        embeddings_initializer: Initializer of the table.
        embeddings_regularizer: Regularizer of the table, or None.
        **kwargs: As for `keras.Layer`: `name`, `dtype`, `trainable`.

    Call arguments: those of `PositionalEncoding`; `positions` are integers.

    Returns:
        `(batch, seq, dim)` in the layer's compute dtype; with
        `merge_mode="concat"` `(batch, seq, dim + encoding_dim)`. The mask
        passes through.

    Raises:
        ValueError: An invalid argument; inputs longer than the table, or
            positions outside it; inputs that are not of rank 3, not of a float
            dtype, or of unknown or zero width.

    References:
        - [Gehring et al., 2017](https://arxiv.org/abs/1705.03122)
        - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    REAL_POSITIONS = False

    def __init__(
        self,
        sequence_length: int,
        *,
        merge_mode: str | None = "add",
        encoding_dim: int | None = None,
        skip_masked: bool = False,
        dropout: float = 0.0,
        embeddings_initializer: Any = "glorot_uniform",
        embeddings_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def build_encoding(self, input_shape: tuple[Any, ...]) -> None:
        shape = self.sequence_length, self.encoding_width(input_shape[-1])
        self.embeddings = add_weight_of(self, "embeddings", shape)

    def encode(self, inputs: Any, tokens: Tokens) -> Any:
        positions, start_index, _, mask = tokens
        if positions is None:
            seq = inputs.shape[1]
            if self.skip_masked:  # if there is no mask, known only now
                self._check_length(seq, start_index)
            positions = plain_positions(start_index, ops.shape(inputs)[1])
            if seq is not None and known_values(start_index) is not None:
                mask = None  # no token is outside the table: checked
        else:
            self._check_positions(positions, mask)
        return rows_at(
            ops.convert_to_tensor(self.embeddings), positions, mask=mask
        )

    def check_call(self, inputs: Any, given: Tokens) -> None:
        super().check_call(inputs, given)
        is_counted = given.positions is None and given.segment_ids is None
        if is_counted and not self.skip_masked:
            self._check_length(inputs.shape[1], given.start_index)

    def resized(self, sequence_length: int) -> "PositionEmbedding":
        """Returns a layer with a table of another length, from this one's.

        The table is interpolated linearly between its first and its last row.
        The new layer has the same configuration, including its name, so that
        the weights around it still load.

        Args:
            sequence_length: Number of positions in the new table.

        Returns:
            A new `PositionEmbedding`, built if this one is.

        Raises:
            ValueError: `sequence_length` is not a positive integer.
        """
        check_positive_int("sequence_length", sequence_length)
        layer = type(self).from_config(
            {**self.get_config(), "sequence_length": sequence_length}
        )
        if self.built:
            table = ops.convert_to_numpy(ops.cast(self.embeddings, "float32"))
            layer.build(self.get_build_config()["input_shape"])
            layer.embeddings.assign(resized_table(table, layer.sequence_length))
        return layer

    def _check_length(self, seq: Any, start_index: Any) -> None:
        """Checks counted positions against the table, if they are known."""
        start = known_values(start_index)
        # JAX has a symbol for a dynamic size, which cannot be compared.
        if not isinstance(seq, int) or not seq:
            return
        if start is None or not start.size:
            return
        if start.min() < 0 or int(start.max()) + seq > self.sequence_length:
            self._refuse(
                f"inputs of length {seq} with start_index={start.tolist()}"
            )

    def _check_positions(self, positions: Any, mask: Any) -> None:
        """Checks positions of unmasked tokens against the table, if known."""
        values = known_values(positions)
        real = None if mask is None else known_values(mask)
        if values is None or (mask is not None and real is None):
            return
        if real is not None:
            values = np.broadcast_to(values, real.shape)[real]
        if values.size and (
            values.min() < 0 or values.max() >= self.sequence_length
        ):
            self._refuse(f"positions from {values.min()} to {values.max()}")

    def _refuse(self, what: str) -> None:
        raise ValueError(
            f"{type(self).__name__} '{self.name}' learned only the positions "
            f"0 to {self.sequence_length - 1} (sequence_length="
            f"{self.sequence_length}). Use `resized` to make a layer for "
            f"longer inputs. Received: {what}"
        )


@keras.saving.register_keras_serializable(
    package="keras_posenc", name="CountedPositionEmbedding"
)
class CountedPositionEmbedding(PositionEmbedding):
    """A `PositionEmbedding` in which every masked token gets row 0.

    Not the row of the token before, so that a checkpoint's own row for padding
    can be a part of the embedding of its id. A `mask` that is given counts
    positions only: the mask that the inputs carry is passed on.

    Args:
        sequence_length: As for `PositionEmbedding`.
        skip_masked: True.
        **kwargs: As for `PositionEmbedding`.
    """

    def __init__(
        self, sequence_length: int, *, skip_masked: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(sequence_length, skip_masked=skip_masked, **kwargs)

    def encode(self, inputs: Any, tokens: Tokens) -> Any:
        if tokens.positions is not None:
            positions = hide_masked(tokens.positions, tokens.mask)
            tokens = tokens._replace(positions=positions)
        return super().encode(inputs, tokens)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return resolve_mask(None, inputs)
