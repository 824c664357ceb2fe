"""Where each token stands: positions from masks, segments and offsets."""

from typing import Any

from keras import ops


def counted_positions(
    start_index: Any, segment_ids: Any = None, mask: Any = None
) -> Any:
    """Positions counted from `start_index`, or None for plain counting.

    Args:
        start_index: Integer scalar or `(batch,)`.
        segment_ids: If given, counting starts again with each segment.
        mask: If given, only unmasked tokens count.

    Returns:
        Integers `(batch, seq)`; None where neither segments nor a mask are
        given, so that token `t` stands at `start_index + t`.
    """
    if segment_ids is not None:
        positions = positions_from_segments(segment_ids)
    elif mask is not None:
        positions = positions_from_mask(mask)
    else:
        return None
    return _from_start(start_index, positions)


def plain_positions(start_index: Any, length: Any) -> Any:
    """`start_index ... start_index + length - 1`: `(seq,)` or `(batch, seq)`.

    Args:
        start_index: Integer scalar or `(batch,)`.
        length: Integer, or an integer scalar tensor.
    """
    return _from_start(start_index, ops.arange(length, dtype="int32"))


def _from_start(start_index: Any, positions: Any) -> Any:
    start_index = ops.convert_to_tensor(start_index)
    if len(start_index.shape) == 1:
        start_index = ops.expand_dims(start_index, 1)
    return ops.add(positions, start_index)


def positions_from_mask(mask: Any) -> Any:
    """Positions that count only the unmasked tokens of each row.

    The first unmasked token stands at 0, whatever padding is before it. A
    masked token stands where the last unmasked token before it does (0 if
    there is none).

    Args:
        mask: Bool tensor of shape `(batch, seq)`, True for a token.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Example:
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> mask = ops.convert_to_tensor([[False, False, True, True, True]])
    >>> ops.convert_to_numpy(kp.positions_from_mask(mask)).tolist()
    [[0, 0, 0, 1, 2]]
    """
    counted = ops.cumsum(ops.cast(mask, "int32"), axis=-1)
    return ops.maximum(counted - 1, 0)


def positions_from_segments(segment_ids: Any) -> Any:
    """Positions that start again at 0 with each segment of a packed row.

    Segments are contiguous: a segment begins wherever the id changes, so an
    id that comes back later begins a new segment.

    Args:
        segment_ids: Integer tensor of shape `(batch, seq)`.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Example:
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> segments = ops.convert_to_tensor([[1, 1, 1, 2, 2, 0]])
    >>> ops.convert_to_numpy(kp.positions_from_segments(segments)).tolist()
    [[0, 1, 2, 0, 1, 0]]
    """
    segment_ids = ops.convert_to_tensor(segment_ids)
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
