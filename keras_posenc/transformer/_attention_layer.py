"""The bases of all layers that attend, and the masks of one call."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import (
    has_static_shapes,
    is_compiled_by_xla,
)
from keras_posenc.ops.arguments import (
    check_inputs,
    check_integers,
    check_mask,
    check_position_tensors,
    check_real,
    check_shape,
)
from keras_posenc.ops.cache import Slots
from keras_posenc.ops.masks import (
    Side,
    combine_masks,
    hide_masked,
    hide_padding,
    resolve_mask,
)
from keras_posenc.ops.named import ConfiguredLayer
from keras_posenc.ops.positions import count_positions, counted_positions
from keras_posenc.positional.attention_position import check_position_axes
from keras_posenc.transformer.specs import WITHIN


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


@dataclasses.dataclass(eq=False)
class Context:
    """The masks of one call, and the packing that leaves padding out.

    Attributes:
        queries: The tokens that attend: those of the inputs.
        keys: The tokens attended to; those of the inputs in self-attention.
        batch: The batch size of the inputs.
        attention_mask: As in a call, or None.
        causal: Whether tokens do not attend to later ones.
        memory: The memory of cross-attention, or None.
        slots: The slots of the inputs in a cache, whose tokens are `keys`;
            None without a cache.
        window: How far tokens see; None for all.
        layer_inputs: What all blocks have of each token, and then what the
            block has that computes; None for nothing.
        block: The number of that block.
        shared: The keys and values of the blocks that others attend to.
    """

    queries: Side
    keys: Side
    _: dataclasses.KW_ONLY
    batch: Any
    attention_mask: Any = None
    causal: bool = False
    memory: "Memory | None" = None
    slots: Slots | None = None
    window: int | None = None
    packing: Packing | None = None
    layer_inputs: Any = None
    block: int = 0
    shared: dict[int, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mask = self._combine(self.queries, self.keys, self.attention_mask)
        self._within: dict[int, Context] = {}

    def within(self, window: int | None) -> "Context":
        """Returns a context in which tokens see `window` tokens either way."""
        if window is None:
            return self
        if window not in self._within:  # else another block has made it
            self._within[window] = dataclasses.replace(self, window=window)
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
        """Selects queries and keys by index, and combines their mask.

        `columns` may be None for all keys; `positions` are those of all queries
        and of all keys.
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


_OF_TOKENS = ("positions", "start_index", "segment_ids")
_MASKS = ("mask", "padding_mask", "attention_mask")


class AttentionLayer(ConfiguredLayer, keras.Layer):
    """Base of the layers that take a sequence and attend within it.

    A concrete class is completed by `with_options`. A subclass defines
    `attend(x, context, *, return_attention_scores, training)` on inputs in the
    compute dtype, and passes the context to the layers within; it sets
    `num_layers` if it returns the attention weights of more than one block.
    `positions_within()` lists what uses the positions of the inputs.
    """

    arguments_within = WITHIN

    num_layers: int | None = None
    num_heads: int
    attend: Callable[..., Any]
    positions_within: Callable[[], list[Any]]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        # Keras would cast real positions to the compute dtype, in which 1001
        # and 1000 can be the same number.
        self.autocast = False

    def call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        padding_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        mask: Any = None,
        training: bool | None = None,
        context: Context | None = None,
    ) -> Any:
        return self.called(locals())

    def called(self, given: Mapping[str, Any]) -> Any:
        """Computes a call, of which `given` are the arguments by name."""
        inputs, context = given["inputs"], given["context"]
        x = ops.cast(inputs, self.compute_dtype)
        if context is None:
            context = self.context_of(inputs, given)
            # Once for all layers within: then their padding stays finite.
            x = context.hide_padding(x)
        return self.attend(
            x,
            context,
            return_attention_scores=given["return_attention_scores"],
            training=given["training"],
        )

    def context_of(self, inputs: Any, given: Mapping[str, Any]) -> Context:
        """Checks the arguments of a call, and makes the context of them."""
        of_tokens = {name: given[name] for name in _OF_TOKENS}
        masks = {name: given[name] for name in _MASKS}
        masks["mask"] = resolve_mask(masks["mask"], inputs)
        self._check_call(inputs, **of_tokens, **masks)
        batch, seq, _ = ops.shape(inputs)
        attention_mask = masks.pop("attention_mask")
        within = [*self.positions_within(), *self.positions_across()]
        side = side_of(within, seq, masks=masks.values(), **of_tokens)
        return Context(
            side,
            side,
            batch=batch,
            attention_mask=attention_mask,
            causal=given["use_causal_mask"],
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        return_attention_scores: bool = False,
        context: Context | None = None,
        **call: Any,
    ) -> Any:
        self._check_call(inputs, context=context, **call)
        shape = tuple(inputs.shape)
        if context is not None:  # tokens may be packed: shapes are of before
            sizes = context.batch, context.queries.length
            shape = (
                *(size if isinstance(size, int) else None for size in sizes),
                shape[-1],
            )
        outputs = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        return outputs, self._scores_spec(inputs, inputs)

    def _scores_spec(self, inputs: Any, keys: Any) -> Any:
        """Returns the symbol of weights, or a list with that of each block."""
        batch, seq, _ = inputs.shape
        shape = (batch, self.num_heads, seq, keys.shape[1])
        scores = [
            keras.KerasTensor(shape, dtype=self.compute_dtype)
            for _ in range(self.num_layers or 1)
        ]
        return scores[0] if self.num_layers is None else scores

    def _check_call(
        self,
        inputs: Any,
        *,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        padding_mask: Any = None,
        attention_mask: Any = None,
        mask: Any = None,
        context: Context | None = None,
        **others: Any,
    ) -> None:
        check_inputs(self, inputs)
        batch, seq, _ = inputs.shape
        axes = None
        if context is None:  # else it has the positions
            within = [*self.positions_within(), *self.positions_across()]
            axes = check_position_axes(within, positions)
        check_position_tensors(
            batch, seq, positions, start_index, segment_ids, mask, axes
        )
        _check_each(
            {"padding_mask": padding_mask, "attention_mask": attention_mask},
            {"batch": batch, "seq": seq, "query": seq, "key": seq},
            padding_mask=(check_mask, ("batch", "seq")),
            attention_mask=(check_mask, ("batch", "query", "key")),
        )

    def positions_across(self) -> list[Any]:
        """Lists what uses their positions and those of a memory."""
        return []


class DecodingLayer(AttentionLayer):
    """Base of the layers that take a sequence, and a memory to attend to.

    A subclass defines `attend` as for `AttentionLayer`, with the memory in the
    context, and `cross_attention`: None if it has no weights for a memory.
    """

    cross_attention: Any
    memory_dim: int | None = None
    num_layers = 1
    layer_input_dim: int | None = None

    def call(
        self,
        inputs: Any,
        *,
        memory: Any = None,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        padding_mask: Any = None,
        attention_mask: Any = None,
        use_causal_mask: bool = True,
        memory_positions: Any = None,
        memory_segment_ids: Any = None,
        memory_mask: Any = None,
        memory_attention_mask: Any = None,
        layer_inputs: Any = None,
        return_attention_scores: bool = False,
        mask: Any = None,
        training: bool | None = None,
        context: Context | None = None,
    ) -> Any:
        return self.called(locals())

    def context_of(self, inputs: Any, given: Mapping[str, Any]) -> Context:
        context = super().context_of(inputs, given)
        layer_inputs = given.get("layer_inputs")
        self._check_layer_inputs(inputs, layer_inputs)
        if layer_inputs is not None:
            layer_inputs = ops.cast(layer_inputs, self.compute_dtype)
            context.layer_inputs = context.hide_padding(layer_inputs)
        memory = given["memory"]
        of_memory = {x: given[x] for x in given if x.startswith("memory_")}
        if memory is not None:
            mask = resolve_mask(of_memory["memory_mask"], memory)
            of_memory["memory_mask"] = mask
        self._check_memory(inputs, memory, given["segment_ids"], **of_memory)
        if memory is None:
            return context
        keys = side_of(
            self.positions_across(),
            ops.shape(memory)[1],
            positions=of_memory["memory_positions"],
            segment_ids=of_memory["memory_segment_ids"],
            masks=(mask,),
        )
        memory = ops.cast(memory, self.compute_dtype)
        if keys.tokens is not None:
            memory = hide_padding(memory, keys.tokens)
        across = Context(
            context.queries,
            keys,
            batch=context.batch,
            attention_mask=of_memory["memory_attention_mask"],
        )
        context.memory = Memory(across, memory)
        return context

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        memory: Any = None,
        layer_inputs: Any = None,
        return_attention_scores: bool = False,
        context: Context | None = None,
        **call: Any,
    ) -> Any:
        outputs = super().compute_output_spec(
            inputs,
            return_attention_scores=return_attention_scores,
            context=context,
            **call,
        )
        if context is None:  # else the memory is known, and checked
            segment_ids = call.get("segment_ids")
            of_memory = {x: call[x] for x in call if x.startswith("memory_")}
            self._check_memory(inputs, memory, segment_ids, **of_memory)
            self._check_layer_inputs(inputs, layer_inputs)
        if not return_attention_scores or memory is None:
            return outputs
        return *outputs, self._scores_spec(inputs, memory)

    def _check_layer_inputs(self, inputs: Any, layer_inputs: Any) -> None:
        """Raises `ValueError` for `layer_inputs` that do not fit."""
        name = f"{type(self).__name__} '{self.name}'"
        if self.layer_input_dim is None:
            if layer_inputs is not None:
                raise ValueError(
                    f"{name} has no `layer_input_dim`, and cannot be called "
                    "with `layer_inputs`"
                )
            return
        width = self.num_layers * self.layer_input_dim
        shape = () if layer_inputs is None else tuple(layer_inputs.shape)
        wanted = *inputs.shape[:2], width
        if len(shape) != 3 or any(
            size not in (other, None) and other is not None
            for size, other in zip(shape, wanted, strict=True)
        ):
            raise ValueError(
                f"{name} with layer_input_dim={self.layer_input_dim} takes "
                f"`layer_inputs` of shape (batch, seq, {width}). Received: "
                + ("none" if layer_inputs is None else f"shape {shape}")
            )

    def _check_memory(
        self, inputs: Any, memory: Any, segment_ids: Any, **given: Any
    ) -> None:
        """Raises `ValueError` for a memory that does not fit, or its masks."""
        name = f"{type(self).__name__} '{self.name}'"
        if memory is None:
            if self.cross_attention is not None:
                raise ValueError(
                    f"{name} attends to a memory: call it with `memory` of "
                    "shape (batch, source, dim), such as an encoder's outputs"
                )
            for argument, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"`{argument}` needs a `memory`. Received: no memory"
                    )
            return
        if self.cross_attention is None:
            raise ValueError(
                f"{name} has cross_attention=None, and cannot be called with "
                "`memory`"
            )
        batch, seq, dim = inputs.shape
        dtype = keras.backend.standardize_dtype(memory.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"`memory` must be of a float dtype. "
                f"Received: memory of dtype {dtype}"
            )
        width = dim if self.memory_dim is None else self.memory_dim
        shape = tuple(memory.shape)
        is_shaped = len(shape) == 3 and shape[2] == width
        if not is_shaped or (
            None not in (batch, shape[0]) and batch != shape[0]
        ):
            raise ValueError(
                f"{name} expects `memory` of shape (batch, source, dim), with "
                f"batch={batch}, dim={width}. Received: memory of shape {shape}"
            )
        axes = check_position_axes(
            self.positions_across(),
            given.get("memory_positions"),
            "memory_positions",
        )
        if given.get("memory_segment_ids") is not None and segment_ids is None:
            raise ValueError(
                "`memory_segment_ids` needs the `segment_ids` of the inputs, "
                "which say what each token may read"
            )
        row, source = ("batch", "source"), shape[1]
        sizes = {"batch": batch, "source": source, "axes": axes}
        _check_each(
            given,
            {**sizes, "query": seq, "key": source},
            memory_positions=(
                check_real,
                *([("source",), row] if axes is None else [(*row, "axes")]),
            ),
            memory_segment_ids=(check_integers, row),
            memory_mask=(check_mask, row),
            memory_attention_mask=(check_mask, ("batch", "query", "key")),
        )


def _check_each(
    given: Mapping[str, Any], sizes: Mapping[str, Any], **expected: Any
) -> None:
    """Raises `ValueError` for tensors that do not fit, or of a wrong dtype.

    Of each is expected a check of its dtype, and shapes by names of axes.
    """
    for name, (check, *shapes) in expected.items():
        value = given.get(name)
        axes = {axis for shape in shapes for axis in shape}
        own = {axis: size for axis, size in sizes.items() if axis in axes}
        check_shape(name, value, *shapes, sizes=own)
        if value is not None:
            check(name, value)


def side_of(
    within: list[Any],
    seq: Any,
    *,
    positions: Any = None,
    start_index: Any = 0,
    segment_ids: Any = None,
    masks: Iterable[Any] = (),
) -> Side:
    """Makes a side of attention, with positions if a layer within needs them.

    Of several masks, some of them None, real tokens are those of all.
    """
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    tokens = functools.reduce(ops.logical_and, given) if given else None
    if not within:
        return Side(seq, tokens, None, segment_ids)
    # Padding may have NaN positions, and does not count towards the length.
    hides = positions is not None or any(
        position.uses_length for position in within
    )
    if (
        positions is None
        and segment_ids is None
        and tokens is not None
        and any(position.is_absolute for position in within)
    ):
        # As a cache does: padding on the left must not count.
        positions = counted_positions(start_index, mask=tokens)
    positions = count_positions(
        positions,
        start_index=start_index,
        segment_ids=segment_ids,
        length=seq,
    )
    if hides:
        positions = hide_masked(positions, tokens)
    return Side(seq, tokens, positions, segment_ids)
