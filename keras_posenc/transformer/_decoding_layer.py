"""The base of the layers that attend to a memory: their call."""

from typing import Any

import keras
from keras import ops

from keras_posenc.ops.arguments import (
    check_integers,
    check_mask,
    check_real,
    check_shape,
)
from keras_posenc.ops.masks import hide_padding, resolve_mask
from keras_posenc.positional._position_axes import check_position_axes
from keras_posenc.positional.attention_kinds import check_attention_position
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    listed,
    side_of,
)
from keras_posenc.transformer._context import Context, Memory


class DecodingLayer(AttentionLayer):
    """Base of the layers that take a sequence, and a memory to attend to.

    A subclass defines `attend` as for `AttentionLayer`, with the memory in the
    context. It sets `attention_position` and `cross_attention_position`
    (either may be a list), and `use_cross_attention`: whether it has weights
    for a memory.
    """

    cross_attention_position: Any
    use_cross_attention: bool = True
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
            if memory is not None:
                memory_mask = resolve_mask(memory_mask, memory)
            self._check_memory(
                inputs,
                memory,
                segment_ids,
                memory_positions=memory_positions,
                memory_segment_ids=memory_segment_ids,
                memory_mask=memory_mask,
                memory_attention_mask=memory_attention_mask,
            )
            batch, seq, _ = ops.shape(inputs)
            queries = side_of(
                self._positions_within(),
                seq,
                positions=positions,
                start_index=start_index,
                segment_ids=segment_ids,
                masks=(mask, padding_mask),
            )
            remembered = None
            if memory is not None:
                keys = side_of(
                    self._across(),
                    ops.shape(memory)[1],
                    positions=memory_positions,
                    segment_ids=memory_segment_ids,
                    masks=(memory_mask,),
                )
                memory = ops.cast(memory, self.compute_dtype)
                if keys.tokens is not None:
                    memory = hide_padding(memory, keys.tokens)
                remembered = Memory(
                    Context(
                        queries,
                        keys,
                        batch=batch,
                        attention_mask=memory_attention_mask,
                    ),
                    memory,
                )
            context = Context(
                queries,
                queries,
                batch=batch,
                attention_mask=attention_mask,
                causal=use_causal_mask,
                memory=remembered,
            )
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
        outputs, scores = outputs
        several = isinstance(scores, list)
        own = scores if several else [scores]
        across = [
            keras.KerasTensor(
                (*each.shape[:3], memory.shape[1]), dtype=each.dtype
            )
            for each in own
        ]
        return outputs, scores, across if several else across[0]

    def _check_memory(
        self, inputs: Any, memory: Any, segment_ids: Any, **of_memory: Any
    ) -> None:
        """Raises `ValueError` for a memory that does not fit, or its masks."""
        name = f"{type(self).__name__} '{self.name}'"
        if memory is None:
            if self.use_cross_attention:
                raise ValueError(
                    f"{name} attends to a memory: call it with `memory` of "
                    "shape (batch, source, dim), such as an encoder's outputs"
                )
            for argument, value in of_memory.items():
                if value is not None:
                    raise ValueError(
                        f"`{argument}` needs a `memory`. Received: no memory"
                    )
            return
        if not self.use_cross_attention:
            raise ValueError(
                f"{name} has use_cross_attention=False, and cannot be called "
                "with `memory`"
            )
        batch, seq, dim = inputs.shape
        dtype = keras.backend.standardize_dtype(memory.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"`memory` must be of a float dtype. "
                f"Received: memory of dtype {dtype}"
            )
        shape = tuple(memory.shape)
        width = dim if self.memory_dim is None else self.memory_dim
        if (
            len(shape) != 3
            or shape[2] != width
            or (None not in (batch, shape[0]) and batch != shape[0])
        ):
            raise ValueError(
                f"{name} expects `memory` of shape (batch, source, dim), with "
                f"batch={batch}, dim={width}. Received: memory of shape {shape}"
            )
        positions, segments, mask, attention_mask = (
            of_memory.get(f"memory_{each}")
            for each in ("positions", "segment_ids", "mask", "attention_mask")
        )
        sizes = {"batch": batch, "source": shape[1]}
        row = ("batch", "source")
        axes = check_position_axes(
            self._across(), positions, "memory_positions"
        )
        if axes is None:
            check_shape(
                "memory_positions", positions, ("source",), row, sizes=sizes
            )
        else:
            check_shape(
                "memory_positions",
                positions,
                (*row, "axes"),
                sizes=sizes | {"axes": axes},
            )
        check_real("memory_positions", positions)
        check_shape("memory_segment_ids", segments, row, sizes=sizes)
        check_shape("memory_mask", mask, row, sizes=sizes)
        if segments is not None:
            check_integers("memory_segment_ids", segments)
            if segment_ids is None:
                raise ValueError(
                    "`memory_segment_ids` needs the `segment_ids` of the "
                    "inputs, which say what each token may read"
                )
        check_shape(
            "memory_attention_mask",
            attention_mask,
            ("batch", "query", "key"),
            sizes={"batch": batch, "query": seq, "key": shape[1]},
        )
        check_mask("memory_mask", mask)
        check_mask("memory_attention_mask", attention_mask)

    def _across(self) -> list[Any]:
        return listed(self.cross_attention_position)

    def _positions_within(self) -> list[Any]:
        return [*super()._positions_within(), *self._across()]


def check_cross_attention_position(
    value: Any, dtype: Any, name: str = "attention_position"
) -> AttentionPosition | None:
    """Returns an `AttentionPosition` that makes sense between two sequences.

    Raises:
        ValueError: The position depends on the length of a sequence, on how
            many keys come before a query, or on which of two tokens comes
            first.
    """
    position = check_attention_position(value, dtype, name)
    if position is None:
        return None
    what = name_of(position)
    if position.uses_length:
        raise ValueError(
            f"{what} depends on the length of a sequence, and cross-attention "
            "has two: queries and keys would rotate differently"
        )
    if position.counts_keys:
        raise ValueError(
            f"{what} takes the position of a query for the number of keys "
            "before it. In cross-attention that is the length of the memory: "
            "leave this position out there, or give another one"
        )
    if (
        position.causal_only
        or position.steps is not None
        or position.contextual_bias is not None
    ):
        raise ValueError(
            f"{what} depends on the order of the tokens between a query and a "
            "key, which cross-attention does not have: leave "
            "`cross_attention_position` out, or give another one"
        )
    if getattr(position, "bidirectional", True) is False:
        raise ValueError(
            f"{what} with bidirectional=False distinguishes earlier keys from "
            "later ones, and the tokens of a memory are neither"
        )
    return position


def name_of(position: AttentionPosition) -> str:
    """Names the class of a position, and its `rope_type` if it has one."""
    kind = getattr(position, "rope_type", None)
    return type(position).__name__ + (f" with rope_type={kind!r}" * bool(kind))
