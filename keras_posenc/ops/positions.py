"""The positions of tokens, from masks, segments and offsets."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.arguments import check_integers, check_mask, check_shape
from keras_posenc.ops.reductions import largest, sums_of_segments


def counted_positions(
    start_index: Any, *, segment_ids: Any = None, mask: Any = None
) -> Any:
    """Counts positions from `start_index`; returns None for plain counting.

    With `segment_ids` counting starts again with each segment, with a mask only
    unmasked tokens count: integers `(batch, seq)`. Without both, token `t` has
    position `start_index + t`.
    """
    if segment_ids is not None:
        positions = positions_from_segments(segment_ids)
    elif mask is not None:
        positions = positions_from_mask(mask)
    else:
        return None
    return _from_start(start_index, positions)


def plain_positions(start_index: Any, length: Any) -> Any:
    """Returns `start_index ... start_index + length - 1`.

    Integers `(seq,)`, or `(batch, seq)` for a start of `(batch,)`. The length
    may be a scalar tensor.
    """
    return _from_start(start_index, ops.arange(length, dtype="int32"))


def _from_start(start_index: Any, positions: Any) -> Any:
    if not hasattr(start_index, "dtype"):
        # 64 bits only if needed: LiteRT has few operators for them. From 2**30
        # on they may be needed, since counting continues from there.
        start_index = np.asarray(start_index)
        if np.all(start_index < 2**30) and np.all(start_index >= -(2**31)):
            start_index = start_index.astype("int32")
    start_index = ops.convert_to_tensor(start_index)
    if len(start_index.shape) == 1:
        start_index = ops.expand_dims(start_index, 1)
    # Not `ops.add`: on TensorFlow it takes an operand with one column for a
    # bias, and adds it to the columns if their number is that of the rows.
    dtype = keras.backend.result_type(positions.dtype, start_index.dtype)
    return ops.cast(positions, dtype) + ops.cast(start_index, dtype)


def positions_from_mask(mask: Any) -> Any:
    """Counts only the unmasked tokens of each row.

    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> mask = ops.convert_to_tensor([[False, False, True, True, True]])
    >>> ops.convert_to_numpy(kp.positions.positions_from_mask(mask)).tolist()
    [[0, 0, 0, 1, 2]]

    The first unmasked token has position 0, whatever padding is before it. A
    masked token has the position of the last unmasked token before it (0 if
    there is none).

    Args:
        mask: Bool tensor of shape `(batch, seq)`, True for a token.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Raises:
        ValueError: The mask has another rank, or is of floats.
    """
    mask = _check_rows("mask", mask)
    check_mask("mask", mask)
    counted = ops.cumsum(ops.cast(mask, "int32"), axis=-1)
    return ops.maximum(counted - 1, 0)


def positions_from_segments(segment_ids: Any) -> Any:
    """Counts positions from 0 again in each segment of a packed row.

    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> segments = ops.convert_to_tensor([[1, 1, 1, 2, 2, 0]])
    >>> positions = kp.positions.positions_from_segments(segments)
    >>> ops.convert_to_numpy(positions).tolist()
    [[0, 1, 2, 0, 1, 0]]

    Segments are contiguous: a segment starts wherever the id changes, so an id
    that occurs again later starts a new segment.

    Args:
        segment_ids: Integer tensor of shape `(batch, seq)`. Give a symbolic
            one to a layer's argument of this name instead.

    Returns:
        int32 tensor of shape `(batch, seq)`.

    Raises:
        ValueError: Segments of another rank or of floats, or symbolic ones.
    """
    if isinstance(segment_ids, keras.KerasTensor):
        raise ValueError(
            "`segment_ids` must be a tensor with values; if it is symbolic, "
            "give it to a layer as its `segment_ids` argument. "
            f"Received: {segment_ids}"
        )
    segment_ids = _check_rows("segment_ids", segment_ids)
    check_integers("segment_ids", segment_ids)
    batch, seq = ops.shape(segment_ids)
    index = ops.expand_dims(ops.arange(seq, dtype="int32"), 0)
    run, begins = _runs(segment_ids)
    # One token of each run holds the run's start, all others hold 0.
    starts = ops.reshape(begins * index, (-1,))
    first = sums_of_segments(starts, run, count=batch * seq)
    return index - ops.reshape(ops.take(first, run), (batch, seq))


def token_counts(mask: Any) -> Any:
    """Counts the unmasked tokens of each row: int32 `(batch, 1)`."""
    return ops.sum(ops.cast(mask, "int32"), axis=-1, keepdims=True)


def row_lengths(mask: Any) -> Any:
    """Returns the place after each row's last token: int32 `(batch, 1)`."""
    mask = ops.cast(mask, "int32")
    place = ops.arange(ops.shape(mask)[1], dtype="int32") + 1
    # An empty row has no maximum: add a column of 0.
    ends = ops.pad(mask * place, [[0, 0], [0, 1]])
    return largest(ends, axis=-1, keepdims=True)


def segment_lengths(segment_ids: Any, *, mask: Any = None) -> Any:
    """Returns how many unmasked tokens the segment of each token has."""
    segment_ids = ops.convert_to_tensor(segment_ids)
    if mask is None:
        counted = ops.ones_like(segment_ids, dtype="int32")
    else:
        counted = ops.cast(mask, "int32")
        # One row of segments may be for all rows of the mask.
        segment_ids = ops.broadcast_to(segment_ids, ops.shape(counted))
    batch, seq = ops.shape(segment_ids)
    run, _ = _runs(segment_ids)
    counted = ops.reshape(counted, (-1,))
    lengths = sums_of_segments(counted, run, count=batch * seq)
    return ops.reshape(ops.take(lengths, run), (batch, seq))


def _runs(segment_ids: Any) -> tuple[Any, Any]:
    """Returns each token's run, `(batch * seq,)`, and which tokens start one.

    Runs are numbered through the whole batch: each row has seq numbers, of
    which it may use fewer. The first token of a row is not marked: its run
    starts at 0 anyway.
    """
    batch, seq = ops.shape(segment_ids)
    changed = ops.cast(
        ops.not_equal(segment_ids[:, 1:], segment_ids[:, :-1]), "int32"
    )
    # An empty row has no first token.
    changed = ops.pad(changed, [[0, 0], [1, 0]])[:, :seq]
    row = ops.expand_dims(ops.arange(batch, dtype="int32") * seq, 1)
    run = row + ops.cumsum(changed, axis=1)
    return ops.reshape(run, (-1,)), changed


def count_positions(
    positions: Any, *, start_index: Any, segment_ids: Any, length: Any
) -> Any:
    """Returns the positions given, or else counts them.

    `(1, seq)` or `(batch, seq)`, or the vectors that were given.
    """
    if positions is None:
        positions = counted_positions(start_index, segment_ids=segment_ids)
        if positions is None:
            positions = plain_positions(start_index, length)
    positions = ops.convert_to_tensor(positions)
    if len(positions.shape) == 1:
        positions = ops.expand_dims(positions, 0)
    return positions


def _check_rows(name: str, value: Any) -> Any:
    """Returns the value as a tensor, which must be `(batch, seq)`."""
    if not hasattr(value, "shape"):
        value = ops.convert_to_tensor(value)
    unknown = {"batch": None, "seq": None}
    check_shape(name, value, ("batch", "seq"), sizes=unknown)
    return value
