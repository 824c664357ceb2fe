"""Buffers of fixed size that fill as a sequence goes on, slot by slot."""

from typing import Any

from keras import ops


class Slots:
    """Where some new tokens stand in buffers that hold a whole sequence.

    All rows write to the same slots, whatever positions their tokens have. A
    loop can carry buffers whose shapes stay, and `where` and `take` are what
    every runtime has: updates of slices are not.

    Args:
        first: The slot of the first new token, an integer scalar.
        count: How many tokens are new.
        length: How many slots there are.
        in_place: Whether a step updates a slice all the same, for a compiler
            that writes nothing but the slice then.
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
        # Of each slot, the new token that it takes, if it takes one.
        self.source = ops.clip(place, 0, count - 1)

    @property
    def is_step(self) -> bool:
        """Whether one token comes, which needs no look at those beside it."""
        return isinstance(self.count, int) and self.count == 1

    def write(self, buffer: Any, new: Any, *, axis: int = 1) -> Any:
        """The buffer with the new tokens in their slots.

        Args:
            buffer: Any shape, with the slots on `axis`.
            new: The same shape, with the new tokens on `axis`.
            axis: Not negative.

        Returns:
            A tensor of the buffer's shape and dtype.
        """
        rank = len(buffer.shape)
        new = ops.cast(new, buffer.dtype)
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
        # What does not fit is left out, and the last token stays.
        shape = (*ops.shape(buffer)[:axis], 1, *ops.shape(buffer)[axis + 1 :])
        kept = ops.slice(buffer, start, shape)
        new = ops.where(ops.less(self.first, self.length), new, kept)
        return of_shape(ops.slice_update(buffer, start, new), buffer)


def of_shape(x: Any, like: Any) -> Any:
    """`x`, known to have the shape of `like`: TensorFlow's loops ask for it."""
    if hasattr(x, "set_shape"):
        x.set_shape(like.shape)
    return x


def rows_of(tree: Any, rows: Any) -> Any:
    """Some rows of every tensor in nested dicts and lists: integers `(n,)`."""
    if isinstance(tree, dict):
        return {key: rows_of(value, rows) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [rows_of(value, rows) for value in tree]
    return ops.take(tree, rows, axis=0)
