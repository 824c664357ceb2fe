"""The blocks of encoder and decoder."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Unpack

import keras
from keras import ops

from keras_posenc.checks import check_bool, check_positive_int
from keras_posenc.keras_internals import called_alike
from keras_posenc.ops.arguments import (
    check_sequence_shape,
    check_tokens,
)
from keras_posenc.ops.broadcasting import outer_sizes
from keras_posenc.ops.masks import hide_padding
from keras_posenc.ops.named import ConfiguredLayer, keep_arguments
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    Context,
    DecodingLayer,
    side_of,
)
from keras_posenc.transformer._options import (
    BlockOptions,
    FeedForwardOptions,
    ProjectionOptions,
    StackOptions,
    for_keras,
    for_sublayer,
    keep_options,
    select,
    with_options,
)
from keras_posenc.transformer._sublayers import (
    make_dense,
    make_norm,
    normalized,
    project,
)
from keras_posenc.transformer.attention import CrossAttention, SelfAttention
from keras_posenc.transformer.specs import (
    Attention,
    Attentions,
    across_like,
    by_block,
    check_across,
    check_attention,
    check_norm,
    is_same,
)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(FeedForwardOptions, dropout=0.0)
class FeedForward(ConfiguredLayer, keras.Layer):
    """Two projections with an activation between them, token by token.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> feed_forward = kp.FeedForward(64, activation="gelu")
    >>> tuple(feed_forward(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    Args:
        intermediate_dim: Width between the two projections.
        **options: As for `FeedForwardOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        training: Whether dropout is active.
        mask: Bool `(batch, seq)`, True for a token; by default the mask that
            the inputs carry. Padding is replaced by zeros, so that it does
            not reach the gradients of the weights.

    Returns:
        `(batch, seq, dim)` in the compute dtype.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Shazeer, 2020](https://arxiv.org/abs/2002.05202) (gates)
    """

    def __init__(
        self,
        intermediate_dim: int,
        **options: Unpack[FeedForwardOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, locals())
        keep_options(self, FeedForwardOptions, options)
        # A list is for stacks.
        check_positive_int("intermediate_dim", self.intermediate_dim)
        self.gate = None
        if self.use_gate:
            self.gate = make_dense(
                self, self.intermediate_dim, "gate", self.activation
            )
        self.intermediate = make_dense(
            self,
            self.intermediate_dim,
            "intermediate",
            None if self.use_gate else self.activation,
        )
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        *outer, dim = input_shape
        self.intermediate.build((*outer, dim))
        if self.gate is not None:
            self.gate.build((*outer, dim))
        # Created here, as the width is known now.
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((*outer, self.intermediate_dim))
        self.dropout_layer.build((*outer, dim))

    def call(
        self, inputs: Any, *, training: bool | None = None, mask: Any = None
    ) -> Any:
        check_tokens(self, inputs, mask)
        if mask is not None:
            inputs = hide_padding(inputs, ops.cast(mask, "bool"))
        outer = outer_sizes(inputs)
        x = project(self.intermediate, inputs, (-1,))
        if self.gate is not None:
            x = x * project(self.gate, inputs, (-1,))
        outputs = project(self.output_projection, x, outer)
        return self.dropout_layer(outputs, training=training)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return tuple(input_shape)

    def compute_output_spec(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        check_tokens(self, inputs, mask)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


_PARTS = ("attention", "cross_attention", "feed_forward")


class Block(AttentionLayer):
    """Base of the blocks: sublayers, each with a residual and a norm.

    Args:
        num_heads: Number of heads.
        attention: That of the self-attention.
        cross_attention: That of the cross-attention, or `"same"`; None for a
            block without one.
        memory_dim: As `CrossAttention` takes it.
        layer_input_dim, use_output_scale: As `TransformerDecoderBlock` takes.
        **options: All of `BlockOptions`.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention: Any,
        cross_attention: Any = None,
        memory_dim: int | None = None,
        layer_input_dim: int | None = None,
        use_output_scale: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, locals())
        kept = keep_options(self, BlockOptions, options)

        def make(
            kind: Any, name: str, takes: Any, *args: Any, **own: Any
        ) -> Any:
            return kind(
                *args,
                **own,
                **for_sublayer(select(takes, kept), name),
                dtype=self.dtype_policy,
                name=name,
            )

        def make_attention(kind: Any, name: str, value: Any, **own: Any) -> Any:
            own |= {"attention": value, "norm_epsilon": self.norm.epsilon}
            return make(kind, name, ProjectionOptions, num_heads, **own)

        dtype = self.dtype_policy
        spec = check_attention("attention", attention, dtype)
        self.attention = make_attention(SelfAttention, "attention", spec)
        self.cross_attention = None
        if cross_attention is not None:
            name = "cross_attention"
            if is_same(cross_attention):
                cross_attention = across_like(spec)
            across = check_across(name, cross_attention, dtype)
            self.cross_attention = make_attention(
                CrossAttention, name, across, memory_dim=memory_dim
            )
        self.feed_forward = make(
            FeedForward,
            "feed_forward",
            FeedForwardOptions,
            self.intermediate_dim,
        )
        self.num_heads = self.attention.num_heads
        at = self.norm.at
        for part in _PARTS:
            is_first = part == "attention"
            is_before = {"between": not is_first, "parallel": is_first}
            for kind, is_there in (
                ("norm", is_before.get(at, at != "output")),
                ("output_norm", "output" in at),
            ):
                norm, name = None, f"{part}_{kind}"
                if is_there and getattr(self, part) is not None:
                    norm = make_norm(self.norm, dtype, name)
                setattr(self, name, norm)
        self.input_gate: Any = None
        self.input_norm: Any = None
        if self.layer_input_dim is not None:
            width = self.layer_input_dim
            self.input_gate = make_dense(
                self, width, "input_gate", self.activation, use_bias=False
            )
            self.input_norm = make_norm(self.norm, dtype, "input_norm")
        self.output_scale = None
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=dtype, name="dropout"
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # The attributes are the layers that were made of the specs.
        for name in ("attention", "cross_attention"):
            layer = getattr(self, name)
            if name in config and layer is not None:
                spec = layer.attention
                config[name] = keras.saving.serialize_keras_object(spec)
        return config

    def positions_within(self) -> list[Any]:
        return list(self.attention.positions_within())

    def positions_across(self) -> list[Any]:
        across = self.cross_attention
        return [] if across is None else across.positions_across()

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for sublayer in (
            *(each for part in self._parts() for each in part),
            self.dropout_layer,
        ):
            if sublayer is not None:
                sublayer.build(tuple(input_shape))
        if self.input_gate is not None:
            *outer, dim = input_shape
            self.input_gate.build((*outer, dim))
            self.input_projection = make_dense(
                self, dim, "input_projection", use_bias=False
            )
            self.input_projection.build((*outer, self.layer_input_dim))
            self.input_norm.build((*outer, dim))
        if self.use_output_scale:
            self.output_scale = self.add_weight(
                shape=(), initializer="ones", name="output_scale"
            )

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        scores = []

        def weighed(attention: Any, x: Any) -> Any:
            outputs = attention.attend(
                x,
                context,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if return_attention_scores:
                outputs, weights = outputs
                scores.append(weights)
            return outputs

        x = self.add_parts(x, context, weighed, training)
        return (x, *scores) if return_attention_scores else x

    def add_parts(
        self,
        x: Any,
        context: Context,
        attend: Callable[[Any, Any], Any],
        training: bool | None,
    ) -> Any:
        """Applies the sublayers, each with norm, dropout and residual.

        `attend` takes one of the block's attentions, and its inputs.
        """
        is_after = "after" in self.norm.at
        inputs = None
        for part, norm, output_norm in self._parts():
            if inputs is None or self.norm.at != "parallel":
                inputs = x if is_after else normalized(norm, x)
            if part is self.feed_forward:  # has its own dropout
                outputs = part(inputs, training=training)
            else:
                outputs = attend(part, inputs)
                outputs = self.dropout_layer(outputs, training=training)
            x = x + normalized(output_norm, outputs)
            if is_after:
                x = normalized(norm, x)
        if self.input_gate is not None:
            outputs = project(self.input_gate, x)
            outputs = outputs * ops.cast(context.layer_inputs, outputs.dtype)
            outputs = project(self.input_projection, outputs)
            x = x + normalized(self.input_norm, outputs)
        if self.output_scale is not None:
            x = x * ops.cast(self.output_scale, x.dtype)
        return x

    def _parts(self) -> list[tuple[Any, Any, Any]]:
        """Lists the sublayers, each with the norms around it."""
        return [
            (
                getattr(self, part),
                getattr(self, f"{part}_norm"),
                getattr(self, f"{part}_output_norm"),
            )
            for part in _PARTS
            if getattr(self, part) is not None
        ]


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerEncoderBlock(Block):
    """Self-attention and feed-forward, each with a residual and a norm.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerEncoderBlock(num_heads=4, intermediate_dim=32)
    >>> tuple(block(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    Post-norm, as in the paper: `x = norm(x + attention(x))`. Pre-norm
    (`norm="before"`), which trains more steadily when deep:
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: An `Attention`, or a position alone, such as `"rotary"`.
        **options: As for `BlockOptions`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762) (post-norm)
        - [Xiong et al., 2020](https://arxiv.org/abs/2002.04745) (pre-norm)
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        **options: Unpack[BlockOptions],
    ) -> None:
        super().__init__(num_heads, attention=attention, **options)


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(BlockOptions)
class TransformerDecoderBlock(Block, DecodingLayer):
    """Causal self-attention, cross-attention and feed-forward.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> block = kp.TransformerDecoderBlock(num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(block(target, memory=memory).shape)
    (2, 5, 16)

    Each with a residual and a norm. Post-norm, as in the paper:
    `x = norm(x + attention(x))`; pre-norm (`norm="before"`):
    `x = x + attention(norm(x))`.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: The self-attention: an `Attention`, or a position alone,
            such as `"rotary"`.
        cross_attention: The attention to a memory, as `CrossAttention` takes
            it; `"same"` for that of `attention` without position and window;
            or None for the block of a decoder-only model, which is called
            without `memory`.
        memory_dim: Width of the memory; by default that of the inputs.
        layer_input_dim: Width of a further input, `layer_inputs`, which a gate
            multiplies after the feed-forward part; None for none.
        use_output_scale: Whether the outputs are multiplied by a number that is
            learned.
        **options: As for `BlockOptions`.

    Call arguments: those of `SelfAttention`, where `use_causal_mask` is True
    by default, and:
        memory: Float tensor of shape `(batch, source, memory_dim)`.
        memory_positions: Where its tokens stand, as in `CrossAttention`.
        memory_segment_ids: Integers `(batch, source)`, as in `CrossAttention`.
        memory_mask: Bool `(batch, source)`, True for a token; by default the
            mask that the memory carries.
        memory_attention_mask: Bool `(batch, seq, source)`: which token may
            attend to which token of the memory.
        layer_inputs: Float tensor of shape `(batch, seq, layer_input_dim)`; in
            a stack `(batch, seq, num_layers * layer_input_dim)`.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` also the weights of the self-attention,
        `(batch, num_heads, seq, seq)`, and of the cross-attention,
        `(batch, num_heads, seq, source)`, where there is one.
    """

    def __init__(
        self,
        num_heads: int = 8,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        cross_attention: Attention | AttentionPosition | str | None = "same",
        memory_dim: int | None = None,
        layer_input_dim: int | None = None,
        use_output_scale: bool = False,
        **options: Unpack[BlockOptions],
    ) -> None:
        if memory_dim is not None and cross_attention is None:
            raise ValueError(
                "`memory_dim` needs a `cross_attention`. "
                f"Received: memory_dim={memory_dim!r}, cross_attention=None"
            )
        super().__init__(
            num_heads,
            attention=attention,
            cross_attention=cross_attention,
            memory_dim=memory_dim,
            layer_input_dim=layer_input_dim,
            use_output_scale=use_output_scale,
            **options,
        )

    def attend_cached(
        self,
        x: Any,
        context: Context,
        cache: dict[str, Any],
        remembered: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Computes the outputs of further tokens, and extends the cache.

        As `attend_cached` of a stack; `remembered` is None without a memory.
        """

        def attend(attention: Any, x: Any) -> Any:
            nonlocal cache
            if attention is self.attention:
                outputs, cache = attention.attend_cached(x, context, cache)
                return outputs
            return attention.read(
                x,
                context.memory,
                remembered,
                return_attention_scores=False,
                training=False,
            )

        x = self.add_parts(x, context, attend, False)
        return x, cache


class Stack(AttentionLayer):
    """Base of the stacks: blocks and, unless these are post-norm, a norm.

    Args:
        block: The class of the blocks.
        num_layers: Number of blocks.
        cross_attention: As `TransformerDecoder` takes it.
        skip_padding: Whether the blocks leave padding out of their computation.
        of_blocks: Further arguments of all blocks, kept as attributes too.
        share_blocks: Whether all blocks are the same layer.
        **options: All of `StackOptions`.
    """

    layer_input_dim: int | None = None

    def __init__(
        self,
        block: Any,
        num_layers: int,
        *,
        skip_padding: bool,
        cross_attention: Any = None,
        of_blocks: dict[str, Any] | None = None,
        share_blocks: bool = False,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_arguments(self, of_blocks or {})
        self.skip_padding = check_bool("skip_padding", skip_padding)
        dtype = self.dtype_policy
        each: dict[str, list[Any]] = {}
        self.attention, each["attention"] = by_block(
            "attention",
            options["attention"],
            num_layers,
            check_attention,
            dtype,
        )
        self.num_layers = count = len(each["attention"])
        self._check_keys_of(each["attention"], options["num_heads"])
        _, each["intermediate_dim"] = by_block(
            "intermediate_dim",
            options["intermediate_dim"],
            count,
            lambda name, value, _: check_positive_int(name, value),
            dtype,
        )
        if is_same(cross_attention):
            cross_attention = across_like(self.attention)
        if (
            isinstance(cross_attention, list | tuple)
            and None in cross_attention
        ):
            raise ValueError(
                "`cross_attention` as a list must have an attention for each "
                "block, Attention() where it has no position. "
                f"Received: cross_attention={cross_attention!r}"
            )
        if isinstance(self, DecodingLayer):
            each["cross_attention"] = [None] * count
            self.cross_attention = None
        if cross_attention is not None:
            self.cross_attention, each["cross_attention"] = by_block(
                "cross_attention", cross_attention, count, check_across, dtype
            )
        of_blocks = {
            **keep_options(self, BlockOptions, options),
            **(of_blocks or {}),
        }
        del of_blocks["intermediate_dim"]
        norm = of_blocks.pop("norm")
        others = replace(norm, at="before") if norm.at == "between" else norm
        each["norm"] = [norm, *[others] * (count - 1)]
        # A shared block is built, saved and quantized once.
        made = [
            block(
                options["num_heads"],
                **{name: values[i] for name, values in each.items()},
                **for_sublayer(of_blocks, f"block_{i}"),
                dtype=dtype,
                name=f"block_{i}",
            )
            for i in range(1 if share_blocks else count)
        ]
        self.blocks = made * count if share_blocks else made
        self.num_heads = self.blocks[0].num_heads
        self.final_norm = None
        if "after" not in self.norm.at:
            self.final_norm = make_norm(self.norm, dtype, "final_norm")
        self.layer_projection: Any = None
        self.layer_norm: Any = None
        if self.layer_input_dim is not None:
            width = count * self.layer_input_dim
            self.layer_projection = make_dense(
                self, width, "layer_projection", use_bias=False
            )
            self.layer_norm = make_norm(self.norm, dtype, "layer_norm")

    def _check_keys_of(self, specs: list[Attention], num_heads: int) -> None:
        """Raises `ValueError` for keys of a block that has none such."""
        for number, spec in enumerate(specs):
            if spec.keys_of is None:
                continue
            source = specs[min(spec.keys_of, number)]
            (own, *steps), (others, *of_source) = (
                (
                    (
                        each.num_key_value_heads or num_heads,
                        each.head_dim,
                        getattr(each.position, "widening", 1),
                    ),
                    getattr(each.position, "steps", None),
                )
                for each in (spec, source)
            )
            steps += of_source
            if source.keys_of is not None or own != others or any(steps):
                raise ValueError(
                    f"`keys_of` of block {number} must be the number of an "
                    "earlier block with keys of its own, as many and as wide, "
                    "and positions without steps. "
                    f"Received: keys_of={spec.keys_of}"
                )

    def positions_within(self) -> list[Any]:
        return [x for block in self.blocks for x in block.positions_within()]

    def positions_across(self) -> list[Any]:
        return [x for block in self.blocks for x in block.positions_across()]

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        for block in self.blocks:
            if not block.built:  # by the block before, if shared
                block.build(tuple(input_shape))
        if self.final_norm is not None:
            self.final_norm.build(tuple(input_shape))
        if self.layer_projection is not None:
            self.layer_projection.build(tuple(input_shape))
            shape = (*input_shape[:-1], self.num_layers, self.layer_input_dim)
            self.layer_norm.build(shape)

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        if self.skip_padding and not return_attention_scores:
            context.skip_padding(x, training)
        x = context.pack(x)
        scores: list[Any] = []

        def compute(block: Any, x: Any) -> Any:
            return block(
                x,
                return_attention_scores=return_attention_scores,
                training=training,
                context=context,
            )

        for block in self.each_block(x, context):
            x = self._computed(compute, block, context, x)
            if return_attention_scores:
                x, *weights = x
                scores.append(weights)
        x = self.finish(x, context)
        # (block, kind of attention) -> (kind of attention, block)
        by_kind = (list(weights) for weights in zip(*scores, strict=True))
        return (x, *by_kind) if return_attention_scores else x

    def _computed(
        self, function: Any, block: Any, context: Context, *given: Any
    ) -> Any:
        """Returns `function(block, *given)`, of alike blocks by one graph."""
        if context.shared or context.layer_inputs is not None:
            # What one block computes for others is not of its graph alone.
            return function(block, *given)
        across = getattr(block, "cross_attention", None)
        kind = (
            block.norm,
            block.attention.attention,
            None if across is None else across.attention,
        )
        known = context.queries.known
        return called_alike(function, block, *given, known=known, kind=kind)

    def each_block(self, x: Any, context: Context) -> Iterator[Any]:
        """Yields the blocks, for each of which the context is made ready."""
        inputs = context.layer_inputs
        if inputs is not None:
            # (..., layers * dim) -> (..., layers, dim)
            by_layer = (*outer_sizes(x), self.num_layers, self.layer_input_dim)
            own = ops.reshape(project(self.layer_projection, x), by_layer)
            inputs = ops.reshape(
                context.pack(inputs), by_layer
            ) + self.layer_norm(own)
        specs = [block.attention.attention for block in self.blocks]
        context.shared = dict.fromkeys(
            spec.keys_of for spec in specs if spec.keys_of is not None
        )
        for number, block in enumerate(self.blocks):
            context.block = number
            if inputs is not None:
                context.layer_inputs = inputs[..., number, :]
            yield block

    def finish(self, x: Any, context: Context) -> Any:
        """Applies the final norm, and unpacks the tokens: (batch, seq, dim)."""
        if self.final_norm is not None:
            x = self.final_norm(x)
        return context.hide_padding(context.unpack(x))


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerEncoder(Stack):
    """A stack of `TransformerEncoderBlock`s, as wide as its inputs.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32"),
    ...     keras.layers.Embedding(1000, 64, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ...     kp.TransformerEncoder(num_layers=2, num_heads=4),
    ...     kp.Pooling1D("mean"),
    ... ])
    >>> model.output_shape
    (None, 64)

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        share_blocks: Whether all blocks are one, as in ALBERT.
        skip_padding: Whether the blocks skip the padding of masked inputs, so
            that the time of a batch depends on its real tokens. The outputs do
            not change. Only on TensorFlow: padding is computed, and not used,
            on other backends, in a LiteRT or ONNX file, where XLA compiles
            (`jit_compile=True`), and in a call with an `attention_mask` or
            `return_attention_scores`.
        **options: As for `StackOptions`.

    Call arguments: those of `SelfAttention`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` a pair of it and a list with the weights of
        each block, `(batch, num_heads, seq, seq)`.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
        - [Lan et al., 2019](https://arxiv.org/abs/1909.11942) (shared blocks)
        - [Warner et al., 2024](https://arxiv.org/abs/2412.13663) (windows in
          some blocks)
    """

    def __init__(
        self,
        num_layers: int = 6,
        *,
        share_blocks: bool = False,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        attention = options["attention"]
        norm = check_norm("norm", options["norm"])
        several = attention, options["intermediate_dim"]
        alike = norm.at != "between" and not any(
            isinstance(each, list | tuple) for each in several
        )
        if check_bool("share_blocks", share_blocks) and not alike:
            raise ValueError(
                "`share_blocks` needs blocks that are alike: one `attention`, "
                "one `intermediate_dim`, and a `norm` that is not 'between'. "
                f"Received: attention={attention!r}, "
                f"intermediate_dim={several[1]!r}, norm={norm!r}"
            )
        super().__init__(
            TransformerEncoderBlock,
            num_layers,
            share_blocks=share_blocks,
            skip_padding=skip_padding,
            **options,
        )
        self.share_blocks = share_blocks


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(StackOptions)
class TransformerDecoder(Stack, DecodingLayer):
    """A stack of `TransformerDecoderBlock`s, as wide as its inputs.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> decoder = kp.TransformerDecoder(2, num_heads=4, intermediate_dim=32)
    >>> target = np.ones((2, 5, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(decoder(target, memory=memory).shape)
    (2, 5, 16)

    The defaults are the paper's.

    Args:
        num_layers: Number of blocks.
        cross_attention: The attentions to a memory, as `CrossAttention` takes
            them: one for all blocks, or a list; `"same"` for that of
            `attention` without position and window; or None for the stack of
            a decoder-only model, which is called without `memory`.
        memory_dim: Width of the memory; by default that of the inputs.
        layer_input_dim: Width of a further input of each block, as in Gemma 4:
            `layer_inputs` plus a normalized projection of the inputs. A gate
            multiplies it after the feed-forward part. None for none.
        use_output_scale: Whether the outputs of each block are multiplied by a
            number that is learned.
        skip_padding: Whether the blocks leave padding out of their computation,
            as `TransformerEncoder` says.
        **options: As for `StackOptions`.

    Call arguments: those of `TransformerDecoderBlock`.

    Returns:
        `(batch, seq, dim)` in the compute dtype, 0 for padded tokens; with
        `return_attention_scores` also a list with the weights of each
        self-attention, and one with those of each cross-attention, if any.
    """

    def __init__(
        self,
        num_layers: int = 6,
        *,
        cross_attention: Attentions = "same",
        memory_dim: int | None = None,
        layer_input_dim: int | None = None,
        use_output_scale: bool = False,
        skip_padding: bool = True,
        **options: Unpack[StackOptions],
    ) -> None:
        super().__init__(
            TransformerDecoderBlock,
            num_layers,
            cross_attention=cross_attention,
            skip_padding=skip_padding,
            of_blocks={
                "memory_dim": memory_dim,
                "layer_input_dim": layer_input_dim,
                "use_output_scale": use_output_scale,
            },
            **options,
        )

    def attend_cached(
        self,
        x: Any,
        context: Context,
        caches: list[dict[str, Any]],
        remembered: list[dict[str, Any]],
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Computes the outputs of further tokens, and extends the caches.

        Args:
            x: `(batch, query, dim)`, in the compute dtype.
            context: The new tokens as queries, all slots as keys.
            caches: Those of the blocks, as `empty_caches` makes them.
            remembered: What `remember` returned; empty without a memory.
        """

        def attend(block: Any, x: Any, *caches: Any) -> Any:
            return block.attend_cached(x, context, *caches)

        x = context.hide_padding(x)
        left, new = iter(caches), []
        for block in self.each_block(x, context):
            spec = block.attention.attention
            cache = next(left) if spec.keys_of is None else {}
            given = x, cache, remembered[context.block] if remembered else None
            x, cache = self._computed(attend, block, context, *given)
            if spec.keys_of is None:
                new.append(cache)
        return self.finish(x, context), new

    def empty_caches(self, batch: Any, length: Any) -> list[dict[str, Any]]:
        """Makes buffers for the keys and values of each block, all zeros.

        Blocks that attend to the keys of another one have none.
        """
        return [
            block.attention.empty_cache(batch, length)
            for block in self.blocks
            if block.attention.attention.keys_of is None
        ]

    def remember(self, memory: Any, tokens: Any) -> list[dict[str, Any]]:
        """Computes the keys and values of a memory for each block.

        Its `tokens`, bool `(batch, source)`, are those that are real.
        """
        memory = hide_padding(ops.cast(memory, self.compute_dtype), tokens)
        keys = side_of(
            self.positions_across(), ops.shape(memory)[1], masks=(tokens,)
        )
        return [
            block.cross_attention.remember(memory, keys)
            for block in self.blocks
            if block.cross_attention is not None
        ]
