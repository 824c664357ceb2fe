"""Where each token stands: positions from masks, segments and offsets."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import check_shape


def positions_from_mask(mask: Any) -> Any:
    """Positions that count only the unmasked tokens of each row.

    The first unmasked token stands at 0, whatever padding is before it. A
    masked token stands where the last unmasked token before it does (0 if
    there is none).

    Args:
        mask: Bool tensor of shape `(batch, seq)`, True for a token.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Raises:
        ValueError: A mask of another rank.

    Example:
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> mask = ops.convert_to_tensor([[False, False, True, True, True]])
    >>> ops.convert_to_numpy(kp.positions_from_mask(mask)).tolist()
    [[0, 0, 0, 1, 2]]
    """
    mask = _check_rows("mask", mask)
    counted = ops.cumsum(ops.cast(mask, "int32"), axis=-1)
    return ops.maximum(counted - 1, 0)


def positions_from_segments(segment_ids: Any) -> Any:
    """Positions that start again at 0 with each segment of a packed row.

    Segments are contiguous: a segment begins wherever the id changes, so an
    id that comes back later begins a new segment.

    Args:
        segment_ids: Integer tensor of shape `(batch, seq)`. A symbolic one
            goes to a layer's argument of this name.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Raises:
        ValueError: Segments of another rank, or symbolic ones.

    Example:
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> segments = ops.convert_to_tensor([[1, 1, 1, 2, 2, 0]])
    >>> ops.convert_to_numpy(kp.positions_from_segments(segments)).tolist()
    [[0, 1, 2, 0, 1, 0]]
    """
    if isinstance(segment_ids, keras.KerasTensor):
        raise ValueError(
            "`segment_ids` must be a tensor with numbers; of a symbolic one, "
            "let a layer count by its `segment_ids` argument. "
            f"Received: {segment_ids}"
        )
    segment_ids = _check_rows("segment_ids", segment_ids)
    batch, seq = ops.shape(segment_ids)
    index = ops.expand_dims(ops.arange(seq, dtype="int32"), 0)
    changed = ops.cast(
        ops.not_equal(segment_ids[:, 1:], segment_ids[:, :-1]), "int32"
    )
    # An empty row has no first token.
    changed = ops.pad(changed, [[0, 0], [1, 0]])[:, :seq]
    # Runs are numbered through the whole batch: seq numbers for each row, of
    # which a row with fewer runs leaves the last ones unused.
    row = ops.expand_dims(ops.arange(batch, dtype="int32") * seq, 1)
    run = row + ops.cumsum(changed, axis=1)
    starts = changed * index
    run, starts = ops.reshape(run, (-1,)), ops.reshape(starts, (-1,))
    # One token of each run holds where it starts, all others hold 0.
    first = ops.segment_sum(starts, run, num_segments=batch * seq)
    return index - ops.reshape(ops.take(first, run), (batch, seq))


def count_positions(
    positions: Any, start_index: Any, segment_ids: Any, seq: Any
) -> Any:
    """The positions given, else counted.

    Args:
        positions: `(seq,)` or `(batch, seq)`, or None.
        start_index: Where counting starts: an integer or `(batch,)`.
        segment_ids: Integers `(batch, seq)`, with each of whose segments
            counting starts again, or None.
        seq: The number of tokens.

    Returns:
        `(1, seq)` or `(batch, seq)`.
    """
    if positions is None:
        if segment_ids is None:
            positions = ops.arange(seq, dtype="int32")
        else:
            positions = positions_from_segments(segment_ids)
        if not isinstance(start_index, int) or start_index:
            start_index = ops.convert_to_tensor(start_index)
            if len(start_index.shape) == 1:
                start_index = ops.expand_dims(start_index, 1)
            positions = ops.add(positions, start_index)
    positions = ops.convert_to_tensor(positions)
    if len(positions.shape) == 1:
        positions = ops.expand_dims(positions, 0)
    return positions


def _check_rows(name: str, value: Any) -> Any:
    """The tensor, if it has the shape `(batch, seq)`."""
    if not hasattr(value, "shape"):
        value = ops.convert_to_tensor(value)
    unknown = {"batch": None, "seq": None}
    check_shape(name, value, ("batch", "seq"), sizes=unknown)
    return value
