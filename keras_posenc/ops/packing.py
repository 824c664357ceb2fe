"""The tokens of a batch in one sequence, without its padding."""

from typing import Any

from keras import ops

from keras_posenc.ops.masks import hide_padding


class Packing:
    """Packs `(batch, seq, dim)` into one row, `(1, tokens, dim)`, and back.

    Layers that work token by token then skip padding, except for padding at
    the start of a row: it is kept, so that unpacked padding always repeats a
    token of its own row, never one of another row. Packing, unpacking and both
    gradients are gathers: a scatter would take several times as long.

    Args:
        mask: Bool `(batch, seq)`, True for a token.
        training: Whether gradients will be needed. If not, they are the
            backend's gradients of a gather, which a saved graph keeps.
    """

    def __init__(self, mask: Any, *, training: bool | None = None) -> None:
        self.training = bool(training)
        self.shape = ops.shape(mask)
        self.mask = ops.reshape(mask, (-1,))
        index = ops.arange(ops.shape(self.mask)[0], dtype="int32")
        begins = ops.equal(ops.arange(self.shape[1], dtype="int32"), 0)
        packed = ops.reshape(ops.logical_or(mask, begins), (-1,))
        # `sources`: for each packed token, its place in the batch. `places`:
        # for each place, its packed token, or the last one before it.
        counted = ops.cast(packed, "int32")
        self.places = ops.cumsum(counted) - 1
        # Not ops.nonzero, for which LiteRT has no operator.
        sources = ops.segment_sum(
            ops.where(packed, index, ops.zeros_like(index)),
            self.places,
            num_segments=ops.shape(self.mask)[0],
        )
        self.sources = sources[: ops.sum(counted)]

    def pack(self, x: Any) -> Any:
        """Returns `(1, tokens, dim)` of `(batch, seq, dim)`."""

        def gradient(upstream: Any) -> Any:
            return hide_padding(
                ops.take(upstream, self.places, axis=0), self.mask
            )

        rows = self._take(_rows(x), self.sources, gradient)
        return ops.expand_dims(rows, 0)

    def unpack(self, x: Any) -> Any:
        """Returns `(batch, seq, dim)` of `(1, tokens, dim)`.

        Padding repeats some token of its own row. Attention must mask it: its
        gradient counts as 0.
        """

        def gradient(upstream: Any) -> Any:
            return ops.take(upstream, self.sources, axis=0)

        rows = self._take(_rows(x), self.places, gradient)
        return ops.reshape(rows, (*self.shape, x.shape[-1]))

    def _take(self, x: Any, rows: Any, gradient: Any) -> Any:
        if not self.training:
            return ops.take(x, rows, axis=0)

        def take(x: Any) -> Any:
            def backward(*args: Any, upstream: Any = None) -> Any:
                return gradient(args[0] if upstream is None else upstream)

            return ops.take(x, rows, axis=0), backward

        return ops.custom_gradient(take)(x)


def _rows(x: Any) -> Any:
    """Reshapes (..., dim) to (tokens, dim)."""
    return ops.reshape(x, (-1, x.shape[-1]))
