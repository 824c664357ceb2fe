"""The base of all layers that attend: their call and their output."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
from keras import ops

from keras_posenc.checks import check_positive_int
from keras_posenc.ops.arguments import (
    check_inputs,
    check_mask,
    check_position_tensors,
    check_shape,
)
from keras_posenc.ops.masks import hide_masked, resolve_mask
from keras_posenc.ops.named import NamedArguments, config_of
from keras_posenc.ops.positions import count_positions, counted_positions
from keras_posenc.ops.sides import Side
from keras_posenc.positional._position_axes import check_position_axes
from keras_posenc.positional.attention_kinds import check_attention_position
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._quantized import QuantizedWithin


class AttentionLayer(NamedArguments, QuantizedWithin, keras.Layer):
    """Base of the layers that take a sequence and attend within it.

    A concrete class is completed by `with_options`. A subclass defines
    `attend(x, context, *, return_attention_scores, training)` on inputs in the
    compute dtype, and passes the context to the layers within; it sets
    `num_layers` if it returns the attention weights of more than one block.
    """

    hidden_arguments = frozenset({"context"})

    num_layers: int | None = None
    num_heads: int
    attention_position: Any
    attend: Callable[..., Any]

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
            mask = resolve_mask(mask, inputs)
            self._check_call(
                inputs,
                positions=positions,
                start_index=start_index,
                segment_ids=segment_ids,
                padding_mask=padding_mask,
                attention_mask=attention_mask,
                mask=mask,
            )
            batch, seq, _ = ops.shape(inputs)
            side = side_of(
                self.attention_position,
                seq,
                positions=positions,
                start_index=start_index,
                segment_ids=segment_ids,
                masks=(mask, padding_mask),
            )
            context = Context(
                side,
                side,
                batch=batch,
                attention_mask=attention_mask,
                causal=use_causal_mask,
            )
            # Once for all layers within: then their padding stays finite.
            x = context.hide_padding(x)
        return self.attend(
            x,
            context,
            return_attention_scores=return_attention_scores,
            training=training,
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
        batch, seq, _ = inputs.shape
        shape = (batch, self.num_heads, seq, seq)
        scores = [
            keras.KerasTensor(shape, dtype=self.compute_dtype)
            for _ in range(self.num_layers or 1)
        ]
        return outputs, scores[0] if self.num_layers is None else scores

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self)}

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
            axes = check_position_axes(self._positions_within(), positions)
        check_position_tensors(
            batch, seq, positions, start_index, segment_ids, mask, axes
        )
        sizes = {"batch": batch, "seq": seq}
        row = ("batch", "seq")
        check_shape("padding_mask", padding_mask, row, sizes=sizes)
        check_shape(
            "attention_mask",
            attention_mask,
            ("batch", "query", "key"),
            sizes={"batch": batch, "query": seq, "key": seq},
        )
        check_mask("padding_mask", padding_mask)
        check_mask("attention_mask", attention_mask)

    def _positions_within(self) -> list[Any]:
        """Lists what uses the positions of the inputs."""
        return listed(self.attention_position)


def listed(positions: Any) -> list[Any]:
    """Lists the positions of blocks: of one for all, a list, or None."""
    if not isinstance(positions, list):
        positions = [positions]
    return [position for position in positions if position is not None]


def check_heads(
    num_heads: Any, num_key_value_heads: Any = None
) -> tuple[int, int]:
    """Checks the numbers of heads of queries, and of keys and values."""
    heads = check_positive_int("num_heads", num_heads)
    if num_key_value_heads is None:
        return heads, heads
    shared = check_positive_int("num_key_value_heads", num_key_value_heads)
    if heads % shared:
        raise ValueError(
            "`num_key_value_heads` must divide `num_heads`. Received: "
            f"num_key_value_heads={num_key_value_heads}, num_heads={num_heads}"
        )
    return heads, shared


def check_window(value: Any) -> int | None:
    """Checks how far a token sees on either side of itself; None for all."""
    if value is None:
        return None
    return check_positive_int("attention_window", value)


def check_windows(value: Any, num_layers: Any) -> list[int | None]:
    """Lists the window of each block, from one for all or a list."""
    count = check_positive_int("num_layers", num_layers)
    if not isinstance(value, list | tuple):
        return [check_window(value)] * count
    if len(value) != count:
        raise ValueError(
            "`attention_window` as a list must have one entry for each of "
            f"the {count} blocks. Received: {len(value)} entries"
        )
    return [check_window(each) for each in value]


def head_width(layer: Any, dim: int) -> int:
    """Computes the width of one head of a layer, on inputs of width `dim`."""
    if layer.head_dim is not None:
        return int(layer.head_dim)
    if dim % layer.num_heads:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}': `num_heads` must divide "
            "the width of the inputs, unless `head_dim` is given. Received: "
            f"num_heads={layer.num_heads}, inputs of width {dim}"
        )
    return int(dim) // int(layer.num_heads)


def check_positions(name: str, value: Any, num_layers: int, dtype: Any) -> Any:
    """Returns one shared position, a list with one for each block, or None."""
    if not isinstance(value, list | tuple):
        return check_attention_position(value, dtype, name)
    if len(value) != num_layers:
        raise ValueError(
            f"`{name}` as a list must have one entry for each of "
            f"the {num_layers} blocks. Received: {len(value)} entries"
        )
    return [check_attention_position(each, dtype, name) for each in value]


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
