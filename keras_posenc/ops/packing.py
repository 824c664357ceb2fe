"""The tokens of a batch side by side, without its padding."""

from typing import Any

from keras import ops

from keras_posenc.ops.masks import hide_padding


class Packing:
    """Lays `(batch, seq, dim)` out as one row, `(1, tokens, dim)`, and back.

    What works token by token then never sees padding, but for padding that
    begins a row: it stands in for the rest of its row's, so that nothing of
    another row ever does. Both ways are gathers, and so are both gradients: a
    scatter would cost several times as much.

    Args:
        mask: Bool `(batch, seq)`, True for a token.
        training: Whether gradients will be asked for. Without, they are what
            the backend makes of a gather, which a saved graph keeps.
    """

    def __init__(self, mask: Any, *, training: bool | None = None) -> None:
        self.training = bool(training)
        self.shape = ops.shape(mask)
        self.mask = ops.reshape(mask, (-1,))
        index = ops.arange(ops.shape(self.mask)[0], dtype="int32")
        begins = ops.equal(ops.arange(self.shape[1], dtype="int32"), 0)
        packed = ops.reshape(ops.logical_or(mask, begins), (-1,))
        # Of each packed token, where it stood; of each place, the packed
        # token that stands there, or stood there last in the same row.
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
        """`(batch, seq, dim)` -> `(1, tokens, dim)`."""

        def gradient(upstream: Any) -> Any:
            return hide_padding(
                ops.take(upstream, self.places, axis=0), self.mask
            )

        rows = self._take(_rows(x), self.sources, gradient)
        return ops.expand_dims(rows, 0)

    def unpack(self, x: Any) -> Any:
        """`(1, tokens, dim)` -> `(batch, seq, dim)`.

        Padding is like some token of its own row. Attention is to mask it: its
        gradient is taken for 0.
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
    """All tokens below each other: (..., dim) -> (tokens, dim)."""
    return ops.reshape(x, (-1, x.shape[-1]))
