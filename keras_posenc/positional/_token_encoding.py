"""The base of all encodings of sequences: the positions of their tokens."""

from collections.abc import Callable
from typing import Any, ClassVar

import keras

from keras_posenc.checks import check_bool
from keras_posenc.ops.arguments import check_integers, check_position_tensors
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.positions import counted_positions
from keras_posenc.positional._merged_encoding import MergedEncoding


class TokenEncoding(MergedEncoding):
    """Base of the encodings of `(batch, seq, dim)` by position.

    Each token is merged with its own encoding only. So values of padding stay
    in padding, and reach no gradient of a weight.

    A subclass defines `encode`. It gets checked arguments, with the mask
    resolved, and positions as returned by `place`. `PositionalEncoding`
    documents them.

    Args:
        skip_masked: Whether only unmasked tokens count, so that padding on the
            left has no effect. A masked token has the position of the last
            unmasked one before it. Without a mask it has no effect.
        **kwargs: As for `MergedEncoding`.
    """

    # (inputs, positions, start_index, segment_ids, mask) -> the encoding,
    # (seq, width) or (batch, seq, width).
    encode: Callable[..., Any]
    # Whether positions may be floats, not only integers.
    REAL_POSITIONS: ClassVar[bool] = True

    def __init__(self, *, skip_masked: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_masked = check_bool("skip_masked", skip_masked)

    def call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        positions, mask = self.place(
            inputs, positions, start_index, segment_ids, mask
        )
        encoding = self.encode(
            inputs, positions, start_index, segment_ids, mask
        )
        return self.merge(inputs, encoding, training)

    def compute_output_spec(
        self, inputs: Any, *, training: bool | None = None, **call: Any
    ) -> Any:
        self.check_call(inputs, **call)
        return keras.KerasTensor(
            self.compute_output_shape(inputs.shape), dtype=self.compute_dtype
        )

    def place(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> tuple[Any, Any]:
        """Checks a call; returns the positions of its tokens and their mask.

        Positions are None where all are counted from `start_index`.
        """
        mask = resolve_mask(mask, inputs)
        self.check_call(inputs, positions, start_index, segment_ids, mask)
        if positions is not None:
            return hide_masked(positions, mask), mask
        counted = mask if self.skip_masked else None
        return counted_positions(
            start_index, segment_ids=segment_ids, mask=counted
        ), mask

    def check_call(
        self,
        inputs: Any,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        mask: Any = None,
    ) -> None:
        """Raises `ValueError` for call arguments that exclude each other."""
        self.check_inputs(inputs)
        batch, seq, _ = inputs.shape
        check_position_tensors(
            batch, seq, positions, start_index, segment_ids, mask
        )
        if segment_ids is not None and self.skip_masked:
            raise ValueError(
                "`segment_ids` cannot be used with skip_masked=True, which "
                "counts positions in another way"
            )
        if positions is None:
            return
        if not self.REAL_POSITIONS:
            check_integers("positions", positions)
        if self.skip_masked:
            raise ValueError(
                "`positions` gives the position of every token, and cannot be "
                "used with skip_masked=True"
            )
