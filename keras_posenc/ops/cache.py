"""Buffers of fixed size for a sequence that grows, slot by slot."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from keras import ops

_UPDATES_SLICES = contextvars.ContextVar(
    "keras_posenc_updates_slices", default=False
)


@contextlib.contextmanager
def slices_updated() -> Iterator[None]:
    """Within, all new tokens are written as one slice that fits the buffer.

    For a runtime that has this operator, and a caller that keeps the slots
    within the buffer: else the slice would move.
    """
    token = _UPDATES_SLICES.set(True)
    try:
        yield
    finally:
        _UPDATES_SLICES.reset(token)


class Slots:
    """The slots of new tokens in buffers for a whole sequence.

    All rows write to the same slots, whatever positions their tokens have. A
    loop can carry buffers, as their shapes do not change. `where` and `take`
    exist in every runtime; updates of slices do not.

    Args:
        first: The slot of the first new token, an integer scalar.
        count: How many tokens are new.
        length: How many slots there are.
        in_place: Whether a step updates a slice anyway, for a compiler that
            then writes only this slice.
    """

    def __init__(
        self, first: Any, *, count: Any, length: Any, in_place: bool = False
    ) -> None:
        self.first = first
        self.count = count
        self.length = length
        self.in_place = in_place
        self.index = ops.arange(length, dtype="int32")
        if self.is_step:
            self.written = ops.equal(self.index, first)
            return
        place = self.index - first
        self.written = ops.logical_and(place >= 0, place < count)
        # For each slot the index of its new token, if it gets one.
        self.source = ops.clip(place, 0, count - 1)

    @property
    def is_step(self) -> bool:
        """Whether there is one new token, so that `take` is not needed."""
        return isinstance(self.count, int) and self.count == 1

    def write(self, buffer: Any, new: Any, *, axis: int = 1) -> Any:
        """Returns the buffer with the new tokens in their slots.

        Args:
            buffer: Any shape, with the slots on `axis`.
            new: The same shape, with the new tokens on `axis`.
            axis: At least 0.

        Returns:
            A tensor of the buffer's shape and dtype.
        """
        rank = len(buffer.shape)
        new = ops.cast(new, buffer.dtype)
        if _UPDATES_SLICES.get():
            start = [0] * rank
            start[axis] = self.first
            return of_shape(ops.slice_update(buffer, start, new), buffer)
        if self.is_step and self.in_place:
            return self._updated(buffer, new, axis)
        if not self.is_step:
            new = ops.take(new, self.source, axis=axis)
        others = tuple(other for other in range(rank) if other != axis)
        written = ops.expand_dims(self.written, others)
        return of_shape(ops.where(written, new, buffer), buffer)

    def _updated(self, buffer: Any, new: Any, axis: int) -> Any:
        start = [0] * len(buffer.shape)
        start[axis] = ops.minimum(self.first, self.length - 1)
        # If the buffer is full, the last token is kept.
        shape = (*ops.shape(buffer)[:axis], 1, *ops.shape(buffer)[axis + 1 :])
        kept = ops.slice(buffer, start, shape)
        new = ops.where(ops.less(self.first, self.length), new, kept)
        return of_shape(ops.slice_update(buffer, start, new), buffer)


def of_shape(x: Any, like: Any) -> Any:
    """Gives `x` the static shape of `like`, as TensorFlow's loops need it."""
    if hasattr(x, "set_shape"):
        x.set_shape(like.shape)
    return x


def rows_of(tree: Any, rows: Any) -> Any:
    """Returns rows, integers `(n,)`, of every tensor in dicts and lists."""
    if isinstance(tree, dict):
        return {key: rows_of(value, rows) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [rows_of(value, rows) for value in tree]
    return ops.take(tree, rows, axis=0)
