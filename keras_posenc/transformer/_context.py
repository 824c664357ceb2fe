"""What one call says of its tokens, once for all the blocks."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.ops.masks import (
    combine_masks,
    hide_masked,
    hide_padding,
)
from keras_posenc.ops.packing import Packing
from keras_posenc.ops.positions import count_positions
from keras_posenc.positional.attention_position import AttentionPosition


class Context:
    """Masks and positions of a call, and where its padding is left out.

    Args:
        shape: The shape of the inputs, `(batch, seq, dim)`.
        positions: As in a call, `(seq,)` or `(batch, seq)`, or None.
        start_index: As in a call.
        segment_ids: As in a call, or None.
        masks: Bools `(batch, seq)`, or None: which tokens are no padding.
        attention_mask: As in a call, or None.
        use_causal_mask: As in a call.
        attention_positions: Those that will ask for positions, or None.
        data_dependent_shapes: Whether shapes may depend on the masks.
    """

    def __init__(
        self,
        shape: Any,
        *,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        masks: tuple[Any, Any],
        attention_mask: Any,
        use_causal_mask: bool,
        attention_positions: Sequence[AttentionPosition | None],
        data_dependent_shapes: bool,
    ) -> None:
        self.batch, self.seq, _ = shape
        self.data_dependent_shapes = data_dependent_shapes
        self.packing: Packing | None = None
        given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
        self.tokens = (
            functools.reduce(ops.logical_and, given) if given else None
        )
        self._mask_parts = {
            "mask": self.tokens,
            "attention_mask": attention_mask,
            "segment_ids": segment_ids,
            "causal_length": self.seq if use_causal_mask else None,
        }
        self.mask = combine_masks(**self._mask_parts)
        uses_length = {
            position.uses_length
            for position in attention_positions
            if position is not None
        }
        # Numbers given for padding may be none at all.
        hides_all = positions is not None
        if uses_length:
            positions = count_positions(
                positions, start_index, segment_ids, self.seq
            )
        self._positions = {
            hides: hide_masked(positions, self.tokens)
            if hides or hides_all
            else positions
            for hides in uses_length
        }

    def positions_for(self, position: AttentionPosition) -> Any:
        """`(1, seq)` or `(batch, seq)`, of padding as `position` wants it."""
        return self._positions[position.uses_length]

    def mask_of(self, rows: Any) -> Any:
        """`mask`, for the given queries alone, integers `(query,)`."""
        return combine_masks(**self._mask_parts, rows=rows)

    def skip_padding(self, training: bool | None) -> None:
        """Has the blocks work on tokens alone, where that can be had.

        A token that an attention mask lets attend to nothing attends to
        everything alike, and so to padding, which must then be there.
        """
        if (
            self.tokens is not None
            and self._mask_parts["attention_mask"] is None
            and keras.config.backend() == "tensorflow"
            and self.data_dependent_shapes
        ):
            # One row may stand for all rows of the batch.
            tokens = ops.broadcast_to(self.tokens, (self.batch, self.seq))
            self.packing = Packing(tokens, training)

    def pack(self, x: Any) -> Any:
        """`(batch, seq, dim)` -> `(1, tokens, dim)`, if padding is skipped."""
        return x if self.packing is None else self.packing.pack(x)

    def unpack(self, x: Any) -> Any:
        """What `pack` packed, as `(batch, seq, dim)` again."""
        return x if self.packing is None else self.packing.unpack(x)

    def hide_padding(self, x: Any) -> Any:
        """`(batch, seq, dim)` with 0 for every padded token."""
        return x if self.tokens is None else hide_padding(x, self.tokens)
