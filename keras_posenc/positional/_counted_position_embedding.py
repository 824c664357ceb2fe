"""The learned table of positions of models that count tokens, not padding."""

from typing import Any

import keras

from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.positional.position_embedding import PositionEmbedding


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

    def encode(
        self,
        inputs: Any,
        positions: Any,
        start_index: Any,
        segment_ids: Any,
        mask: Any,
    ) -> Any:
        if positions is not None:
            positions = hide_masked(positions, mask)
        return super().encode(inputs, positions, start_index, segment_ids, mask)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return resolve_mask(None, inputs)
