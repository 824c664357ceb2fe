"""The tokens and masks of one call, which all blocks share."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import has_static_shapes, is_compiled_by_xla
from keras_posenc.ops.cache import Slots
from keras_posenc.ops.masks import Side, combine_masks, hide_padding


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


class Context:
    """The masks of one call, and the packing that leaves padding out.

    Args:
        queries: The tokens that attend: those of the inputs.
        keys: The tokens attended to; those of the inputs in self-attention.
        batch: The batch size of the inputs.
        attention_mask: As in a call, or None.
        causal: Whether tokens do not attend to later ones.
        memory: The memory of cross-attention, or None.
        slots: The slots of the inputs in a cache, whose tokens are `keys`;
            None without a cache.
    """

    window: int | None = None  # how far tokens see; None for all

    def __init__(
        self,
        queries: Side,
        keys: Side,
        *,
        batch: Any,
        attention_mask: Any = None,
        causal: bool = False,
        memory: "Memory | None" = None,
        slots: Slots | None = None,
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.batch = batch
        self.attention_mask = attention_mask
        self.causal = causal
        self.memory = memory
        self.slots = slots
        self.packing: Packing | None = None
        self.mask = self._combine(queries, keys, attention_mask)
        self._within: dict[int, Context] = {}

    def within(self, window: int | None) -> "Context":
        """Returns a context in which tokens see `window` tokens either way."""
        if window is None:
            return self
        if window not in self._within:  # else another block has made it
            context = self._within[window] = copy.copy(self)
            context.window = window
            context.mask = context._combine(
                self.queries, self.keys, self.attention_mask
            )
        return self._within[window]

    @property
    def sees_windows_alone(self) -> bool:
        """Whether no token needs the keys outside its window.

        A token that an attention mask lets attend to nothing attends to all
        tokens equally; and the keys in a cache have an order of their own.
        """
        return (
            self.attention_mask is None
            and self.window is not None
            and self.slots is None
            and self.keys is self.queries
        )

    def some(
        self, rows: Any, columns: Any, positions: tuple[Any, Any]
    ) -> tuple[Side, Side, Any]:
        """Selects queries and keys, and combines their mask.

        Args:
            rows: The queries to select, integers `(rows,)`.
            columns: The keys to select, integers `(columns,)`; None for all.
            positions: The positions of all queries, and of all keys.
        """
        queries, keys = (
            dataclasses.replace(side, positions=each)
            for side, each in zip(
                (self.queries, self.keys), positions, strict=True
            )
        )
        queries = queries.some(rows)
        if columns is not None:
            keys = keys.some(columns)
        attention_mask = None
        if self.attention_mask is not None:
            attention_mask = ops.take(self.attention_mask, rows, axis=1)
        return queries, keys, self._combine(queries, keys, attention_mask)

    def skip_padding(self, x: Any, training: bool | None) -> None:
        """Packs the tokens, if the backend and the masks allow it.

        A token that an attention mask lets attend to nothing attends to all
        tokens equally, padding included: then nothing is packed. XLA has no
        shapes that depend on masks, and would gain nothing.
        """
        if (
            keras.config.backend() != "tensorflow"
            or has_static_shapes()
            or is_compiled_by_xla(x)
        ):
            return

        def packing_of(tokens: Any, side: Side) -> Packing:
            # One row of a mask may be for the whole batch.
            shape = self.batch, side.length
            return Packing(ops.broadcast_to(tokens, shape), training=training)

        tokens = self.queries.tokens
        if tokens is not None and self.attention_mask is None:
            self.packing = packing_of(tokens, self.queries)
        if self.memory is None:
            return
        across, keys = self.memory.context, self.memory.context.keys
        across.packing = self.packing
        if (
            keys.tokens is not None
            and across.attention_mask is None
            and keys.segment_ids is None
        ):
            # In a memory with only padding all tokens are attended to.
            some = ops.any(keys.tokens, axis=1, keepdims=True)
            tokens = ops.logical_or(keys.tokens, ops.logical_not(some))
            packing = packing_of(tokens, keys)
            self.memory = Memory(across, packing.pack(self.memory.x), packing)

    def mapped(self, change: Callable[[Any], Any]) -> "Context":
        """Copies the context with other tensors, for gradients.

        `change` is called with each tensor in turn, or None for one that is
        absent.
        """
        made = copy.copy(self)
        made._within = {}
        made.queries = made.keys = dataclasses.replace(
            self.queries, positions=change(self.queries.positions)
        )
        if self.keys is not self.queries:
            made.keys = dataclasses.replace(
                self.keys, positions=change(self.keys.positions)
            )
        if self.memory is not None:
            made.memory = dataclasses.replace(
                self.memory,
                context=self.memory.context.mapped(change),
                x=change(self.memory.x),
            )
        return made

    def pack(self, x: Any) -> Any:
        """Packs `(batch, seq, dim)` to `(1, tokens, dim)`, to skip padding."""
        return x if self.packing is None else self.packing.pack(x)

    def unpack(self, x: Any) -> Any:
        """Unpacks what `pack` packed, to `(batch, seq, dim)`."""
        return x if self.packing is None else self.packing.unpack(x)

    def hide_padding(self, x: Any) -> Any:
        """Replaces padded queries by zeros, in `(batch, seq, dim)`."""
        tokens = self.queries.tokens
        return x if tokens is None else hide_padding(x, tokens)

    def _combine(self, queries: Side, keys: Side, attention_mask: Any) -> Any:
        return combine_masks(
            queries=queries,
            keys=keys,
            attention_mask=attention_mask,
            causal=self.causal,
            window=self.window,
        )


@dataclasses.dataclass(frozen=True)
class Memory:
    """A sequence that another one attends to.

    Attributes:
        context: The inputs as queries, and the memory's tokens as keys.
        x: `(batch, source, dim)`; None if its keys and values are cached.
        packing: How `x` is packed, if it is.
    """

    context: Context
    x: Any = None
    packing: Packing | None = None
