"""The bases of all layers that attend: their call and their output."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import layers_within
from keras_posenc.ops.arguments import (
    check_inputs,
    check_integers,
    check_mask,
    check_position_tensors,
    check_real,
    check_shape,
)
from keras_posenc.ops.masks import Side, hide_masked, hide_padding, resolve_mask
from keras_posenc.ops.named import ConfiguredLayer
from keras_posenc.ops.positions import count_positions, counted_positions
from keras_posenc.positional.attention_position import check_position_axes
from keras_posenc.transformer._context import Context, Memory
from keras_posenc.transformer.specs import WITHIN


class QuantizedWithin:
    """Base of layers, before Keras's own, that make the layers within them.

    Keras loads weights into layers made from their config, which does not say
    what `quantize` changed in layers that another layer makes: it is recorded
    here, and they are quantized again before their weights are loaded.
    """

    def get_build_config(self) -> dict[str, Any] | None:
        config = super().get_build_config()  # type: ignore[misc]
        policies = quantized_policies(self)
        return {**config, "quantized": policies} if policies else config

    def build_from_config(self, config: dict[str, Any]) -> None:
        super().build_from_config(config)  # type: ignore[misc]
        quantize_again(self, config.get("quantized", {}))


def quantized_policies(layer: Any) -> dict[str, Any]:
    """Lists the dtype policies of the quantized layers within, by paths."""
    return {
        path: keras.dtype_policies.serialize(each.dtype_policy)
        for path, each in _within(layer)
        if each.quantization_mode
    }


def quantize_again(layer: Any, policies: dict[str, Any]) -> None:
    """Quantizes the layers within that were, by the policies of the config."""
    for path, each in list(_within(layer)):
        if path in policies and not each.quantization_mode:
            each.dtype_policy = keras.dtype_policies.deserialize(policies[path])


def _within(layer: Any) -> Iterator[tuple[str, keras.Layer]]:
    """Yields all built layers within, by paths that begin at the layer itself.

    Keras's paths begin where the layer was built, which changes when loaded.
    """
    tops = layer.layers if isinstance(layer, keras.Model) else [layer]
    for top in tops:
        for each in layers_within(top):
            if each.path and top.path:
                yield top.name + each.path.removeprefix(top.path), each


class AttentionLayer(ConfiguredLayer, QuantizedWithin, keras.Layer):
    """Base of the layers that take a sequence and attend within it.

    A concrete class is completed by `with_options`. A subclass defines
    `attend(x, context, *, return_attention_scores, training)` on inputs in the
    compute dtype, and passes the context to the layers within; it sets
    `num_layers` if it returns the attention weights of more than one block.
    `positions_within()` lists what uses the positions of the inputs.
    """

    hidden_arguments = frozenset({"context"})
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
        x = ops.cast(inputs, self.compute_dtype)
        if context is None:
            context = self._context(
                inputs,
                positions=positions,
                start_index=start_index,
                segment_ids=segment_ids,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                mask=mask,
            )
            # Once for all layers within: then their padding stays finite.
            x = context.hide_padding(x)
        return self.attend(
            x,
            context,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def _context(
        self,
        inputs: Any,
        *,
        attention_mask: Any,
        use_causal_mask: bool,
        mask: Any,
        padding_mask: Any,
        **of_tokens: Any,
    ) -> Context:
        """Checks the arguments of a call, and makes the context of them."""
        mask = resolve_mask(mask, inputs)
        self._check_call(
            inputs,
            attention_mask=attention_mask,
            mask=mask,
            padding_mask=padding_mask,
            **of_tokens,
        )
        batch, seq, _ = ops.shape(inputs)
        masks = (mask, padding_mask)
        within = [*self.positions_within(), *self.positions_across()]
        side = side_of(within, seq, masks=masks, **of_tokens)
        return Context(
            side,
            side,
            batch=batch,
            attention_mask=attention_mask,
            causal=use_causal_mask,
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
        return_attention_scores: bool = False,
        mask: Any = None,
        training: bool | None = None,
        context: Context | None = None,
    ) -> Any:
        x = ops.cast(inputs, self.compute_dtype)
        if context is None:
            context = self._context(
                inputs,
                positions=positions,
                start_index=start_index,
                segment_ids=segment_ids,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                mask=mask,
            )
            if memory is not None:
                memory_mask = resolve_mask(memory_mask, memory)
            of_memory = {
                "memory_positions": memory_positions,
                "memory_segment_ids": memory_segment_ids,
                "memory_mask": memory_mask,
                "memory_attention_mask": memory_attention_mask,
            }
            self._check_memory(inputs, memory, segment_ids, **of_memory)
            if memory is not None:
                keys = side_of(
                    self.positions_across(),
                    ops.shape(memory)[1],
                    positions=memory_positions,
                    segment_ids=memory_segment_ids,
                    masks=(memory_mask,),
                )
                memory = ops.cast(memory, self.compute_dtype)
                if keys.tokens is not None:
                    memory = hide_padding(memory, keys.tokens)
                across = Context(
                    context.queries,
                    keys,
                    batch=context.batch,
                    attention_mask=memory_attention_mask,
                )
                context.memory = Memory(across, memory)
            x = context.hide_padding(x)
        return self.attend(
            x,
            context,
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        memory: Any = None,
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
        if not return_attention_scores or memory is None:
            return outputs
        return *outputs, self._scores_spec(inputs, memory)

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


def listed(positions: Any) -> list[Any]:
    """Lists positions: of one, a list, or None."""
    if not isinstance(positions, list):
        positions = [positions]
    return [position for position in positions if position is not None]


def side_of(
    within: Any,
    seq: Any,
    *,
    positions: Any = None,
    start_index: Any = 0,
    segment_ids: Any = None,
    masks: Iterable[Any] = (),
) -> Side:
    """Makes a side of attention, with positions if a layer within needs them.

    Args:
        within: An `AttentionPosition`, None, or a list of such.
        seq: The number of tokens.
        positions: As in a call.
        start_index: As in a call.
        segment_ids: As in a call.
        masks: Real tokens are those of all masks; each may be None.
    """
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    tokens = functools.reduce(ops.logical_and, given) if given else None
    within = listed(within)
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
