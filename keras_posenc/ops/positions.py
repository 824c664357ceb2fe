"""Where each token stands: positions from masks, segments and offsets."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.ops.arguments import check_integers, check_mask, check_shape
from keras_posenc.ops.reductions import largest, sums_of_segments


def counted_positions(
    start_index: Any, *, segment_ids: Any = None, mask: Any = None
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
    if not hasattr(start_index, "dtype"):
        # 64 bits only for what needs them: LiteRT is poor in such integers.
        # From 2**30 on they may, since counting goes on from there.
        start_index = np.asarray(start_index)
        if np.all(start_index < 2**30) and np.all(start_index >= -(2**31)):
            start_index = start_index.astype("int32")
    start_index = ops.convert_to_tensor(start_index)
    if len(start_index.shape) == 1:
        start_index = ops.expand_dims(start_index, 1)
    # Not `ops.add`: on TensorFlow it takes what has one column for a bias, and
    # adds it to the columns where there are as many of these as rows.
    dtype = keras.backend.result_type(positions.dtype, start_index.dtype)
    return ops.cast(positions, dtype) + ops.cast(start_index, dtype)


def random_positions(scores: Any, *, length: Any, count: Any = None) -> Any:
    """Sorted positions without repetition, the lowest scores' in each row.

    Scores that are drawn evenly give every set of positions the same chance.

    Args:
        scores: `(batch, max_position)`.
        length: How many positions: an integer, or a scalar tensor.
        count: If given, how many of them each row is to have, in front; the
            rest is `max_position - 1`. int32 `(batch, 1)`.

    Returns:
        int32 `(batch, length)`. The graph fails where `length` exceeds
        `max_position`.
    """
    order = ops.cast(ops.argsort(scores, axis=-1), "int32")
    drawn = order[:, :length]
    if count is not None:
        rank = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        rest = ops.full_like(drawn, scores.shape[1] - 1)
        drawn = ops.where(rank < count, drawn, rest)
    # The shape is what fails if there are too few.
    return ops.reshape(ops.sort(drawn, axis=-1), (ops.shape(scores)[0], length))


def spread_positions(rank: Any, *, count: Any, max_position: int) -> Any:
    """The means of sorted random positions, rounded down: evenly spread.

    Of `n` draws without repetition from `0 ... m - 1` the `k`-th, from 0 on,
    is `(k + 1) (m + 1) / (n + 1) - 1` on average.

    Args:
        rank: `k`: int32 `(batch, seq)`, below `count`.
        count: `n`: int32 `(batch, 1)`; 0 counts as 1. Where it exceeds
            `max_position`, tokens are counted from 0.
        max_position: `m`.

    Returns:
        int32 like `rank`, rising strictly with it. Beyond 4 096 tokens, where
        a product is rounded, some may be one off.
    """
    gaps = ops.maximum(count, 1) + 1
    step = ops.maximum(ops.floor_divide(max_position + 1, gaps), 1)
    left = ops.maximum(max_position + 1 - step * gaps, 0)
    # In float32, since this product may be more than int32 holds.
    product = ops.cast(rank + 1, "float32") * ops.cast(left, "float32")
    more = ops.floor(product / ops.cast(gaps, "float32"))
    return (rank + 1) * step + ops.cast(more, "int32") - 1


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
        ValueError: A mask of another rank, or of reals.

    Example:
    >>> from keras import ops
    >>> import keras_posenc as kp
    >>> mask = ops.convert_to_tensor([[False, False, True, True, True]])
    >>> ops.convert_to_numpy(kp.positions_from_mask(mask)).tolist()
    [[0, 0, 0, 1, 2]]
    """
    mask = _check_rows("mask", mask)
    check_mask("mask", mask)
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
        ValueError: Segments of another rank or of reals, or symbolic ones.

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
    check_integers("segment_ids", segment_ids)
    batch, seq = ops.shape(segment_ids)
    index = ops.expand_dims(ops.arange(seq, dtype="int32"), 0)
    run, begins = _runs(segment_ids)
    # One token of each run holds where it starts, all others hold 0.
    starts = ops.reshape(begins * index, (-1,))
    first = sums_of_segments(starts, run, count=batch * seq)
    return index - ops.reshape(ops.take(first, run), (batch, seq))


def token_counts(mask: Any) -> Any:
    """How many tokens of each row are unmasked: int32 `(batch, 1)`."""
    return ops.sum(ops.cast(mask, "int32"), axis=-1, keepdims=True)


def row_lengths(mask: Any) -> Any:
    """How many tokens each row has up to its last unmasked one: `(batch, 1)`.

    int32; 0 for a row without any.
    """
    mask = ops.cast(mask, "int32")
    place = ops.arange(1, ops.shape(mask)[1] + 1, dtype="int32")
    # An empty row has no maximum: one more place, of nothing.
    ends = ops.pad(mask * place, [[0, 0], [0, 1]])
    return largest(ends, axis=-1, keepdims=True)


def segment_lengths(segment_ids: Any, *, mask: Any = None) -> Any:
    """Length of the segment that each token is in.

    Args:
        segment_ids: Integer tensor of shape `(batch, seq)`.
        mask: If given, only unmasked tokens count; `(batch, seq)`.

    Returns:
        int32 tensor of shape `(batch, seq)`.
    """
    segment_ids = ops.convert_to_tensor(segment_ids)
    if mask is None:
        counted = ops.ones_like(segment_ids, dtype="int32")
    else:
        counted = ops.cast(mask, "int32")
        # One row of segments may stand for all rows of the mask.
        segment_ids = ops.broadcast_to(segment_ids, ops.shape(counted))
    batch, seq = ops.shape(segment_ids)
    run, _ = _runs(segment_ids)
    counted = ops.reshape(counted, (-1,))
    lengths = sums_of_segments(counted, run, count=batch * seq)
    return ops.reshape(ops.take(lengths, run), (batch, seq))


def _runs(segment_ids: Any) -> tuple[Any, Any]:
    """The run each token is in, `(batch * seq,)`, and which tokens begin one.

    Runs are numbered through the whole batch: seq numbers for each row, of
    which a row with fewer runs leaves the last ones unused. The first run of a
    row begins at 0, and needs nobody to say so.
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
    """The positions given, else counted.

    Args:
        positions: `(seq,)` or `(batch, seq)`, or None.
        start_index: Where counting starts: an integer or `(batch,)`.
        segment_ids: Integers `(batch, seq)`, with each of whose segments
            counting starts again, or None.
        length: The number of tokens.

    Returns:
        `(1, seq)` or `(batch, seq)`.
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
    """The tensor, if it has the shape `(batch, seq)`."""
    if not hasattr(value, "shape"):
        value = ops.convert_to_tensor(value)
    unknown = {"batch": None, "seq": None}
    check_shape(name, value, ("batch", "seq"), sizes=unknown)
    return value
