"""Buffers of fixed size for a sequence that grows, slot by slot."""

import dataclasses
from typing import Any

from keras import ops

from keras_posenc.keras_internals import written_rows


@dataclasses.dataclass(eq=False)
class Slots:
    """The slots of new tokens in buffers for a whole sequence.

    All rows write to the same slots, whatever positions their tokens have. A
    loop can carry buffers, as their shapes do not change. `where` and `take`
    exist in every runtime; updates of slices do not.

    Attributes:
        first: The slot of the first new token, an integer scalar.
        count: How many tokens are new.
        length: How many slots there are.
        how: How tokens are written. "copy": into copies of the buffers.
            "step": the same, but of buffers of rank 4 a step updates a slice,
            which is all that XLA then writes. "slice": all tokens as one slice,
            which must fit. "memory": a step overwrites the memory of buffers of
            rank 4, for a loop that owns them; its slot must exist.
        real: Bool `(batch, count)`, which new tokens a slice of several has;
            the slots of others keep what they have. By default all.
    """

    first: Any
    _: dataclasses.KW_ONLY
    count: Any
    length: Any
    how: str = "copy"
    real: Any = None

    def __post_init__(self) -> None:
        self.index = ops.arange(self.length, dtype="int32")
        if self.is_step:
            self.written = ops.equal(self.index, self.first)
            return
        place = self.index - self.first
        self.written = ops.logical_and(place >= 0, place < self.count)
        # For each slot the index of its new token, if it gets one.
        self.source = ops.clip(place, 0, self.count - 1)

    @property
    def is_step(self) -> bool:
        """Whether there is one new token, so that `take` is not needed."""
        return isinstance(self.count, int) and self.count == 1

    def write(self, buffer: Any, new: Any, *, axis: int = 1) -> Any:
        """Returns the buffer with the new tokens in their slots, on an axis."""
        rank = len(buffer.shape)
        new = ops.cast(new, buffer.dtype)
        if self.how == "slice":
            start = [0] * rank
            start[axis] = self.first
            if self.real is not None and not self.is_step:
                kept = ops.slice(buffer, start, ops.shape(new))
                apart = [each for each in range(1, rank) if each != axis]
                real = ops.expand_dims(self.real, apart)
                new = ops.where(real, new, kept)
            return of_shape(ops.slice_update(buffer, start, new), buffer)
        if self.is_step and rank == 4 and self.how == "step":
            return self._updated(buffer, new, axis)
        if self.is_step and rank == 4 and self.how == "memory":
            return self._overwritten(buffer, new)
        if not self.is_step:
            new = ops.take(new, self.source, axis=axis)
        others = tuple(other for other in range(rank) if other != axis)
        written = ops.expand_dims(self.written, others)
        return of_shape(ops.where(written, new, buffer), buffer)

    def _overwritten(self, buffer: Any, new: Any) -> Any:
        dim = buffer.shape[-1]
        rows = ops.reshape(buffer, (-1, dim))
        new = ops.reshape(new, (-1, dim))
        places = ops.arange(ops.shape(new)[0], dtype="int32") * self.length
        rows = written_rows(rows, places + self.first, new)
        return of_shape(ops.reshape(rows, ops.shape(buffer)), buffer)

    def _updated(self, buffer: Any, new: Any, axis: int) -> Any:
        start = [0] * len(buffer.shape)
        start[axis] = self.first
        # In a loop of one round, and none if the buffer is full: XLA would fuse
        # a bare update with what reads the buffer, and copy all of it for that.
        (buffer,) = ops.while_loop(
            lambda _: ops.less(self.first, self.length),
            lambda buffer: (ops.slice_update(buffer, start, new),),
            (buffer,),
            maximum_iterations=1,
        )
        return buffer


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
