"""What one call says of its tokens, once for all the blocks."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import is_compiled_by_xla
from keras_posenc.ops.cache import Slots
from keras_posenc.ops.masks import combine_masks, hide_padding
from keras_posenc.ops.packing import Packing
from keras_posenc.ops.sides import Side


class Context:
    """Who attends to whom, and where the padding of queries is left out.

    Args:
        queries: The tokens that attend, those of the inputs.
        keys: Those attended to; the same in self-attention.
        batch: The number of rows of the inputs.
        attention_mask: As in a call, or None.
        causal: Whether tokens attend to none that come later.
        data_dependent_shapes: Whether shapes may depend on the masks.
        memory: What else they attend to, or None.
        slots: Where the keys of the inputs go among those kept from before,
            which are `keys`; None where the inputs are all there is.
    """

    window: int | None = None  # how far tokens see; None for all the way

    def __init__(
        self,
        queries: Side,
        keys: Side,
        *,
        batch: Any,
        attention_mask: Any = None,
        causal: bool = False,
        data_dependent_shapes: bool = True,
        memory: "Memory | None" = None,
        slots: Slots | None = None,
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.batch = batch
        self.attention_mask = attention_mask
        self.causal = causal
        self.data_dependent_shapes = data_dependent_shapes
        self.memory = memory
        self.slots = slots
        self.packing: Packing | None = None
        self.mask = self._combine(queries, keys, attention_mask)
        self._within: dict[int, Context] = {}

    def within(self, window: int | None) -> "Context":
        """The same, where no token sees farther than `window` either way."""
        if window is None:
            return self
        if window not in self._within:  # else made by another block
            context = self._within[window] = copy.copy(self)
            context.window = window
            context.mask = context._combine(
                self.queries, self.keys, self.attention_mask
            )
        return self._within[window]

    @property
    def sees_windows_alone(self) -> bool:
        """Whether what is outside of a token's window is nothing to it.

        A token that an attention mask lets attend to nothing attends to
        everything alike, and keys that are kept have an order of their own.
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
        """The given queries and keys alone, and their mask.

        Args:
            rows: Which queries, integers `(rows,)`.
            columns: Which keys, integers `(columns,)`; None for all.
            positions: Those of all queries, and of all keys.
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
        """Has the blocks work on tokens alone, where that can be had.

        A token that an attention mask lets attend to nothing attends to
        everything alike, and so to padding, which must then be there. XLA
        computes as many tokens as there could be.

        Args:
            x: The inputs, `(batch, seq, dim)`.
            training: As in a call.
        """
        if (
            keras.config.backend() != "tensorflow"
            or not self.data_dependent_shapes
            or is_compiled_by_xla(x)
        ):
            return

        def packing_of(tokens: Any, side: Side) -> Packing:
            # One row may stand for all rows of the batch.
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
            # Of a memory without tokens all is attended to.
            some = ops.any(keys.tokens, axis=1, keepdims=True)
            tokens = ops.logical_or(keys.tokens, ops.logical_not(some))
            packing = packing_of(tokens, keys)
            self.memory = Memory(across, packing.pack(self.memory.x), packing)

    def mapped(self, change: Callable[[Any], Any]) -> "Context":
        """The same of other tensors, where gradients may reach them.

        Args:
            change: Given each tensor in turn, or None in place of one.
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
        """`(batch, seq, dim)` -> `(1, tokens, dim)`, if padding is skipped."""
        return x if self.packing is None else self.packing.pack(x)

    def unpack(self, x: Any) -> Any:
        """What `pack` packed, as `(batch, seq, dim)` again."""
        return x if self.packing is None else self.packing.unpack(x)

    def hide_padding(self, x: Any) -> Any:
        """`(batch, seq, dim)` with 0 for every padded query."""
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
        x: `(batch, source, dim)`, or None where its keys and values are kept.
        packing: How `x` is packed, if it is.
    """

    context: Context
    x: Any = None
    packing: Packing | None = None
