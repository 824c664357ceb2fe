"""Multi-head attention: of a sequence to itself, and to another one."""

from collections.abc import Callable
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_posenc.keras_internals import (
    has_static_shapes,
    is_compiled_by_xla,
    traced_once,
)
from keras_posenc.ops.arguments import check_sequence_shape
from keras_posenc.ops.attention import (
    attend,
    attention_weights,
    in_blocks,
    swap_heads,
    weighted_values,
)
from keras_posenc.ops.distances import arithmetic_dtype
from keras_posenc.ops.masks import Side
from keras_posenc.ops.named import keep_arguments
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._attention_layer import (
    AttentionLayer,
    Context,
    DecodingLayer,
    Memory,
    Packing,
)
from keras_posenc.transformer._options import (
    ProjectionOptions,
    for_keras,
    keep_options,
    with_options,
)
from keras_posenc.transformer._sublayers import (
    make_dense,
    make_norm,
    normalized_heads,
    project,
)
from keras_posenc.transformer.specs import (
    Attention,
    Norm,
    check_across,
    check_attention,
)


class _MultiHead(AttentionLayer):
    """Base of both attentions: their options, and all but the projections."""

    norm_epsilon: float

    def __init__(
        self,
        num_heads: int,
        attention: Any,
        norm_epsilon: float,
        check: Any,
        **options: Unpack[ProjectionOptions],
    ) -> None:
        super().__init__(**for_keras(options))
        keep_options(self, ProjectionOptions, options)
        keep_arguments(self, locals())
        self.attention = spec = check("attention", attention, self.dtype_policy)
        # Keras finds the layers that are attributes.
        self.attention_position = spec.position
        self.num_key_value_heads = spec.num_key_value_heads or self.num_heads
        if self.num_heads % self.num_key_value_heads:
            raise ValueError(
                "`num_key_value_heads` must divide `num_heads`. Received: "
                f"num_key_value_heads={self.num_key_value_heads}, "
                f"num_heads={num_heads}"
            )
        self.query_norm = self.key_norm = None
        if spec.query_key_norm:
            norm = Norm("rms", epsilon=self.norm_epsilon)
            self.query_norm = make_norm(norm, self.dtype_policy, "query_norm")
            if spec.keys_of is None:
                self.key_norm = make_norm(norm, self.dtype_policy, "key_norm")
        self.dropout_layer = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="dropout"
        )

    def _position(self) -> list[Any]:
        """Lists the position, if there is one."""
        position = self.attention_position
        return [] if position is None else [position]

    def _head_width(self, dim: int) -> int:
        """Returns the width of one head, on inputs of width `dim`."""
        if self.attention.head_dim is not None:
            return int(self.attention.head_dim)
        if dim % self.num_heads:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `num_heads` must divide "
                "the width of the inputs, unless `head_dim` is given. Received:"
                f" num_heads={self.num_heads}, inputs of width {dim}"
            )
        return int(dim) // int(self.num_heads)

    def _project_to(
        self, name: str, heads: int, input_shape: tuple[Any, ...], head_dim: int
    ) -> None:
        """Makes a projection to heads, once the width is known."""
        layer = make_dense(
            self, heads * head_dim, name, use_bias=self.attention.use_bias
        )
        setattr(self, name, layer)
        layer.build(input_shape)

    def _build_rest(self, input_shape: Any, keys: Any, *tokens: Any) -> None:
        """Builds all that comes after the projections to heads."""
        batch, seq, dim = input_shape
        head_dim = self._head_width(dim)
        self.output_projection = make_dense(self, dim, "output_projection")
        self.output_projection.build((batch, seq, self.num_heads * head_dim))
        for norm, heads in (
            (self.query_norm, self.num_heads),
            (self.key_norm, self.num_key_value_heads),
        ):
            if norm is not None:
                is_of_all = self.attention.query_key_norm == "all"
                several = heads if is_of_all else 1
                norm.build((None, None, several * head_dim))
        position = self.attention_position
        if position is not None and not position.built:
            position.build((batch, self.num_heads, seq, head_dim), *tokens)
        self.dropout_layer.build((batch, self.num_heads, seq, keys))


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ProjectionOptions, dropout=0.0)
class SelfAttention(_MultiHead):
    """Every token attends to the tokens of its own sequence.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> layer = kp.SelfAttention(num_heads=4, attention="rotary")
    >>> tuple(layer(np.ones((2, 10, 16), "float32")).shape)
    (2, 10, 16)

    Queries, keys and values come from one projection; the scores are scaled by
    `1 / sqrt(head_dim)`. A padded token is never attended to and is
    replaced by zeros: NaN in padding reaches no token and no gradient. NaN in a
    token can make its whole row NaN, earlier tokens under a causal mask too,
    but no other row. The outputs of a row that is all padding are finite.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: An `Attention`, or a position alone, such as `"rotary"`.
        norm_epsilon: Added to the variance in norms of queries and keys.
        **options: As for `ProjectionOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        positions: Positions of the tokens, for that of `attention`: `(seq,)`
            or `(batch, seq)`, integers or floats; 0, 1, 2 ... by default, from
            0 again in each segment of `segment_ids`. Positions of padding do
            not matter; a token at position NaN gives NaN. Without a position
            in `attention` they have no effect.
        start_index: Where counting starts instead of 0, in each segment too:
            an integer or `(batch,)` integers. Not together with `positions`.
        segment_ids: Integers `(batch, seq)`: a token of a packed row attends
            to its own segment only. 0 is a segment like others: without a
            mask, NaN in padding makes the whole row NaN.
        padding_mask: Bool `(batch, seq)`, True for a token.
        attention_mask: Bool `(batch, seq, seq)`: which query (second axis) may
            attend to which key (third axis). A query that may attend to
            nothing attends to all tokens equally, padding included, whose
            values are zeros.
        use_causal_mask: Whether a token sees only itself and earlier ones.
        return_attention_scores: Whether to return the weights as well.
        mask: The same as `padding_mask`; by default the mask that the inputs
            carry. With both, real tokens are those of both.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, seq)`, after their softmax.

    Raises:
        ValueError: An invalid argument, such as a width that
            `num_heads` does not divide, without a `head_dim`.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        norm_epsilon: float = 1e-5,
        **options: Unpack[ProjectionOptions],
    ) -> None:
        super().__init__(
            num_heads, attention, norm_epsilon, check_attention, **options
        )

    def positions_within(self) -> list[Any]:
        return self._position()

    @property
    def head_counts(self) -> list[int]:
        """How many heads of queries, keys and values are projected to."""
        counts = [self.num_heads, *[self.num_key_value_heads] * 2]
        if self.attention.keys_of is not None:
            return counts[:1]
        return counts[:2] if self.attention.keys_as_values else counts

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        shape = tuple(input_shape)
        heads = sum(self.head_counts)
        head_dim = self._head_width(shape[-1])
        self._project_to("query_key_value", heads, shape, head_dim)
        position = self.attention_position
        has_steps = position is not None and position.steps is not None
        self._build_rest(shape, shape[1], *([shape] if has_steps else []))

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        query, key, value = self._project(x, context)
        position = self.attention_position
        check_causal(position, context)
        steps = steps_of(position, x, context, self.num_heads)
        if self.attention.keys_of is None:
            key = rotated(position, key, context.keys, "rotate_keys")
        key, value = self._shared(context, key, value)
        context = context.within(self.attention.window)
        return attend_between(
            self,
            rotated(position, query, context.queries),
            key,
            value,
            context,
            places=places_of(steps, context.queries, context.keys),
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def _shared(self, context: Context, key: Any, value: Any) -> Any:
        """Returns the keys and values to attend to, another block's or own."""
        of = self.attention.keys_of
        if of is not None:
            if of not in context.shared:
                raise ValueError(
                    f"Layer '{self.name}' with keys_of={of} attends to keys of "
                    "another block: give it to a stack"
                )
            return context.shared[of]
        if context.block in context.shared:
            context.shared[context.block] = key, value
        return key, value

    def empty_cache(self, batch: Any, length: Any) -> dict[str, Any]:
        """Makes buffers for the keys and values of some tokens, all zeros."""
        head_dim = self._head_width(self.output_projection.units)
        shape = (batch, self.num_key_value_heads, length, head_dim)
        zeros = ops.zeros(shape, self.compute_dtype)
        cache = {"key": zeros, "value": zeros}
        position = self.attention_position
        if position is not None and position.widening > 1:
            wide = (*shape[:-1], head_dim * position.widening)
            cache["key"] = ops.zeros(wide, self.compute_dtype)
        if position is not None and position.steps is not None:
            # Not in a low precision: sums over a long text need more.
            cache["steps"] = ops.zeros(
                (batch, self.num_heads, length, 1), arithmetic_dtype(zeros)
            )
        return cache

    def attend_cached(
        self, x: Any, context: Context, cache: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Computes the outputs of further tokens, and extends the cache.

        The context has the new tokens as queries, all slots as keys; keys are
        cached as rotated. A block that attends to another one's has no cache.
        """
        query, key, value = self._project(x, context)
        position, slots = self.attention_position, context.slots
        assert slots is not None
        new = {}
        if self.attention.keys_of is None:
            key = rotated(position, key, context.queries, "rotate_keys")
            new = {"key": key, "value": value}
        steps = steps_of(position, x, context, self.num_heads)
        if steps is not None:
            new["steps"] = steps
        cache = {
            name: slots.write(cache[name], each, axis=2)
            for name, each in new.items()
        }
        key, value = self._shared(context, cache.get("key"), cache.get("value"))
        context = context.within(self.attention.window)
        outputs = attend_between(
            self,
            rotated(position, query, context.queries),
            key,
            value,
            context,
            places=places_of(cache.get("steps"), context.queries, context.keys),
            return_attention_scores=False,
            training=False,
        )
        return outputs, cache

    def _project(self, x: Any, context: Context) -> tuple[Any, Any, Any]:
        """Projects inputs to three of (batch, their heads, seq, head_dim).

        Keys and values are None where they are another block's.
        """
        head_dim = self._head_width(x.shape[-1])
        counts = self.head_counts
        projected = ops.reshape(
            context.unpack(project(self.query_key_value, x)),
            (
                context.batch,
                context.queries.length,
                sum(counts),
                head_dim,
            ),
        )
        query, *others = ops.split(
            swap_heads(projected),
            # In equal parts, which mobile runtimes are fast at.
            len(counts)
            if len({*counts}) == 1
            else np.cumsum(counts)[:-1].tolist(),
            axis=1,
        )
        query = normalized_heads(self.query_norm, query) * head_dim**-0.5
        if not others:
            return query, None, None
        key, value = others[0], others[-1]
        if self.attention.value_norm:
            value = ops.rms_normalization(value, epsilon=self.norm_epsilon)
        return query, normalized_heads(self.key_norm, key), value


@keras.saving.register_keras_serializable(package="keras_posenc")
@with_options(ProjectionOptions, dropout=0.0)
class CrossAttention(_MultiHead, DecodingLayer):
    """Every token attends to the tokens of a memory, such as encoder outputs.

    >>> import numpy as np
    >>> import keras_posenc as kp
    >>> attention = kp.CrossAttention(num_heads=4)
    >>> queries = np.ones((2, 3, 16), "float32")
    >>> memory = np.ones((2, 10, 16), "float32")
    >>> tuple(attention(queries, memory=memory).shape)
    (2, 3, 16)

    Queries come from the inputs, keys and values from the memory, which has a
    length of its own. Padding of the memory is never attended to and is
    replaced by zeros. A memory that is all padding gives finite outputs.

    Args:
        num_heads: Number of heads; divides the width of the inputs, unless
            the `head_dim` of `attention` is given.
        attention: An `Attention` without a window, or a position alone. The
            position gets positions of queries in the inputs and of keys in the
            memory. Not allowed are those that depend on the length of a row (a
            `RotaryEmbedding` of the type `"dynamic"` or `"longrope"`), those
            that count keys by the position of the query (`ScalableSoftmax`,
            `AttentionTemperature`), and those that distinguish earlier keys
            from later ones (`bidirectional=False`).
        memory_dim: Width of the memory; by default that of the inputs.
        norm_epsilon: Added to the variance in norms of queries and keys.
        **options: As for `ProjectionOptions`.

    Call arguments:
        inputs: Float tensor of shape `(batch, seq, dim)`.
        memory: Float tensor of shape `(batch, source, memory_dim)`.
        positions, start_index, segment_ids, mask, padding_mask: Of the tokens
            of the inputs, as in `SelfAttention`.
        memory_positions: Positions of the tokens of the memory, `(source,)` or
            `(batch, source)`; 0, 1, 2 ... by default.
        memory_segment_ids: Integers `(batch, source)`: a token attends to
            tokens with its own segment's id. Without them, to all.
        memory_mask: Bool `(batch, source)`, True for a token; by default the
            mask that the memory carries.
        attention_mask: Bool `(batch, seq, source)`: which query may attend to
            which key. A query that may attend to nothing attends to all keys
            equally.
        return_attention_scores: Whether to return the weights as well.
        training: Whether dropout is active.

    Returns:
        `(batch, seq, dim)` in the compute dtype; with
        `return_attention_scores` a pair of it and the weights
        `(batch, num_heads, seq, source)`, after their softmax.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        attention: Attention | AttentionPosition | str | None = None,
        memory_dim: int | None = None,
        norm_epsilon: float = 1e-5,
        **options: Unpack[ProjectionOptions],
    ) -> None:
        super().__init__(
            num_heads, attention, norm_epsilon, check_across, **options
        )
        self.cross_attention = self.attention
        keep_arguments(self, locals())

    def positions_within(self) -> list[Any]:
        return []

    def positions_across(self) -> list[Any]:
        return self._position()

    def build(self, input_shape: Any) -> None:
        check_sequence_shape(self, input_shape)
        shape = tuple(input_shape)
        head_dim = self._head_width(shape[-1])
        self._project_to("query", self.num_heads, shape, head_dim)
        memory = (shape[0], None, self.memory_dim or shape[-1])
        heads = 2 * self.num_key_value_heads
        self._project_to("key_value", heads, memory, head_dim)
        self._build_rest(shape, None)

    # Unlike a block, it needs a memory, and cannot be causal.
    def call(  # type: ignore[override]
        self,
        inputs: Any,
        *,
        memory: Any,
        positions: Any = None,
        start_index: Any = 0,
        segment_ids: Any = None,
        padding_mask: Any = None,
        memory_positions: Any = None,
        memory_segment_ids: Any = None,
        memory_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        mask: Any = None,
        training: bool | None = None,
    ) -> Any:
        given = {
            **locals(),
            "attention_mask": None,
            "memory_attention_mask": attention_mask,
            "use_causal_mask": False,
            "context": None,
        }
        return self.called(given)

    def compute_output_spec(
        self,
        inputs: Any,
        *,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        **call: Any,
    ) -> Any:
        outputs = super().compute_output_spec(
            inputs,
            memory_attention_mask=attention_mask,
            return_attention_scores=return_attention_scores,
            **call,
        )
        if not return_attention_scores:
            return outputs
        outputs, _, weights = outputs
        return outputs, weights

    def attend(
        self,
        x: Any,
        context: Context,
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        memory = context.memory
        assert memory is not None
        return self.read(
            x,
            memory,
            self.remember(memory.x, memory.context.keys, memory.packing),
            return_attention_scores=return_attention_scores,
            training=training,
        )

    def remember(
        self, memory: Any, keys: Side, packing: Packing | None = None
    ) -> dict[str, Any]:
        """Computes the rotated keys and values of a memory, once for all steps.

        Each is `(batch, key_value_heads, source, head_dim)`; keys are wider if
        their position widens them.
        """
        projected = project(self.key_value, memory)
        batch, source = ops.shape(memory)[:2]
        if packing is not None:
            projected = packing.unpack(projected)
            # Not `memory`'s shape: tf2onnx 1.17 would read that of packed rows.
            batch, source = packing.shape
        head_dim = self._head_width(self.output_projection.units)
        projected = ops.reshape(
            projected, (batch, source, 2 * self.num_key_value_heads, head_dim)
        )
        key, value = ops.split(swap_heads(projected), 2, axis=1)
        key = normalized_heads(self.key_norm, key)
        key = rotated(self.attention_position, key, keys, "rotate_keys")
        return {"key": key, "value": value}

    def read(
        self,
        x: Any,
        memory: Memory,
        remembered: dict[str, Any],
        *,
        return_attention_scores: bool,
        training: bool | None,
    ) -> Any:
        """Attends with queries `(batch, query, dim)` to a remembered memory."""
        context = memory.context
        shape = context.batch, context.queries.length, self.num_heads
        head_dim = self._head_width(x.shape[-1])
        query = ops.reshape(
            context.unpack(project(self.query, x)), (*shape, head_dim)
        )
        query = normalized_heads(self.query_norm, swap_heads(query))
        query = query * head_dim**-0.5
        return attend_between(
            self,
            rotated(self.attention_position, query, context.queries),
            remembered["key"],
            remembered["value"],
            context,
            return_attention_scores=return_attention_scores,
            training=training,
        )


def rotated(
    position: AttentionPosition | None, x: Any, side: Side, hook: str = "rotate"
) -> Any:
    """Rotates queries, or keys, by the positions of their tokens."""
    if position is None:
        return x
    hook = hook if getattr(position, hook) else "rotate"
    turned = position.turned(hook, x, side.positions, side.known)
    expected = *x.shape[:-1], x.shape[-1] * position.widening
    turned = _check_hook(position, hook, turned, expected, broadcasts=False)
    return x if turned is None else ops.cast(turned, x.dtype)


def steps_of(
    position: AttentionPosition | None, x: Any, context: Context, heads: int
) -> Any:
    """Returns the steps of the inputs' tokens, as a cache keeps them.

    `(batch, heads, seq, 1)`, 0 for padding; None without the hook `steps`. The
    inputs, `(batch, seq, dim)`, are packed if the context is.
    """
    if position is None or position.steps is None:
        return None
    expected = (*x.shape[:2], heads)
    steps = _check_hook(
        position, "steps", position.steps(x), expected, broadcasts=False
    )
    if steps is None:
        return None
    # (batch, seq, heads) -> (batch, heads, seq, 1)
    steps = ops.transpose(context.unpack(steps), (0, 2, 1))
    tokens = context.queries.tokens
    if tokens is not None:
        steps = ops.where(
            ops.expand_dims(tokens, 1), steps, ops.zeros_like(steps)
        )
    return ops.expand_dims(steps, -1)


def places_of(steps: Any, queries: Side, keys: Side) -> tuple[Any, ...]:
    """Returns the places of queries and keys, two of `(batch, heads, seq)`.

    None without the steps of the keys, `(batch, heads, key, 1)`. The queries
    are among the keys, which are in the order of their `index`.
    """
    if steps is None:
        return ()
    places = ops.cumsum(ops.squeeze(steps, -1), axis=-1)
    if queries is keys:
        return places, places
    # New tokens of a full cache have no slot: their outputs do not matter.
    slots = ops.minimum(queries.index, keys.length - 1)
    return ops.take(places, slots, axis=-1), places


def check_causal(position: AttentionPosition | None, context: Context) -> None:
    """Raises `ValueError` for a causal position where later tokens are seen."""
    if position is None or not position.causal_only:
        return
    if not (context.causal or context.slots is not None):
        raise ValueError(
            f"{type(position).__name__} is for causal attention. Call the "
            "layer or model with `use_causal_mask=True`, or use a decoder"
        )


def attend_between(
    layer: Any,
    query: Any,
    key: Any,
    value: Any,
    context: Context,
    *,
    places: tuple[Any, ...] = (),
    return_attention_scores: bool,
    training: bool | None,
) -> Any:
    """Attends, and projects to the layer's outputs.

    `(batch, query, units)`, packed if the context is; with
    `return_attention_scores` a pair of it and the weights. Queries are scaled,
    and they and the keys rotated; `places` is what `places_of` returned.
    """
    seed = None
    if layer.dropout and training:
        seed = layer.dropout_layer.seed_generator.next()
    heads = (query, key, value, *places)
    between = context.queries, context.keys, context.mask

    def by_size(*heads: Any) -> Any:
        return _by_size(layer, context, seed, training, *heads)

    weights = None
    if return_attention_scores:
        attended, weights = _weighed(layer, between, seed, *heads)
    elif has_static_shapes():
        attended = _attended(layer, between, seed, *heads)
    elif training or isinstance(context.queries.length, int):
        attended = by_size(*heads)
    else:  # the graph has both ways
        names = id(layer.attention_position), id(context.keys), context.window
        attended = traced_once(
            by_size,
            *heads,
            known=context.queries.known,
            key=("attention", *names),
        )
    # (batch, heads, query, head_dim) -> (batch, query, dim)
    attended = swap_heads(attended)
    outer = (context.batch, context.queries.length)
    dim = query.shape[1] * value.shape[-1]
    if context.packing is None:
        attended = ops.reshape(attended, (-1, dim))
        outputs = project(layer.output_projection, attended, outer)
    else:
        attended = ops.reshape(attended, (*outer, dim))
        outputs = project(layer.output_projection, context.pack(attended))
    return (outputs, weights) if return_attention_scores else outputs


def _attended(layer: Any, between: Any, seed: Any, *heads: Any) -> Any:
    """Attends without returning weights.

    `between` are the sides of queries and keys, and the mask; `heads` the
    queries, keys and values, and the places of `places_of`.
    """
    position = layer.attention_position
    if seed is None and (position is None or position.values is None):
        bias = _bias(position, between, *heads)
        return attend(*heads[:3], mask=between[2], bias=bias)
    return _weighed(layer, between, seed, *heads)[0]


def _by_size(
    layer: Any,
    context: Context,
    seed: Any,
    training: bool | None,
    query: Any,
    key: Any,
    value: Any,
    *places: Any,
) -> Any:
    """Attends as `_attended`, with many queries in blocks."""
    position = layer.attention_position
    values = []
    if position is not None and training:  # gradients need a read outside loops
        values = [(each, each.value) for each in position.variables]

    def some(rows: Any, columns: Any) -> Any:
        def of_rows(positions: Any, key_positions: Any, *heads: Any) -> Any:
            between = context.some(rows, columns, (positions, key_positions))
            own = None
            if seed is not None:  # one for each block
                own = seed + ops.cast(ops.stack([rows[0], 0]), seed.dtype)
            return _attended(layer, between, own, *heads)

        near = key, value, *places[1:]
        if columns is not None:
            near = tuple(ops.take(x, columns, axis=2) for x in near)
        given = (
            context.queries.positions,
            context.keys.positions,
            ops.take(query, rows, axis=2),
            *near[:2],
            *(ops.take(x, rows, axis=2) for x in places[:1]),
            *near[2:],
        )
        if not training:
            return of_rows(*given)
        return _recomputed(of_rows, given, values)

    between = context.queries, context.keys, context.mask
    return in_blocks(
        (
            context.batch,
            query.shape[1],
            context.queries.length,
            value.shape[-1],
        ),
        keys=context.keys.length,
        window=context.window if context.sees_windows_alone else None,
        dtype=query.dtype,
        is_trained=bool(training),
        is_compiled=is_compiled_by_xla(query),
        all_at_once=lambda: _attended(
            layer, between, seed, query, key, value, *places
        ),
        some=some,
    )


def _recomputed(
    function: Callable[..., Any],
    given: tuple[Any, ...],
    values: list[tuple[Any, Any]],
) -> Any:
    """Returns `function(*given)`; for gradients only what is given is kept.

    Gradients reach floats that are given, and the `values`: Keras variables,
    with the tensors that it reads instead. In loops, TensorFlow gives variables
    no gradients.
    """
    known = [*given, *(value for _, value in values)]
    floats = [
        i
        for i, x in enumerate(known)
        if x is not None and keras.backend.is_float_dtype(x.dtype)
    ]

    def run(*tensors: Any) -> Any:
        filled = list(known)
        for i, tensor in zip(floats, tensors, strict=True):
            filled[i] = tensor
        read = filled[len(given) :]
        held = [(v, x) for (v, _), x in zip(values, read, strict=True)]
        with keras.StatelessScope(held):
            return function(*filled[: len(given)])

    return keras.remat(run)(*(known[i] for i in floats))


def _weighed(
    layer: Any,
    between: Any,
    seed: Any,
    query: Any,
    key: Any,
    value: Any,
    *places: Any,
) -> tuple[Any, Any]:
    """Attends, and returns the attention weights too."""
    queries, keys, mask = between
    position = layer.attention_position
    bias = _bias(position, between, query, key, value, *places)
    weights = attention_weights(query, key, mask=mask, bias=bias)
    dropped = weights
    if seed is not None:
        dropped = keras.random.dropout(
            weights, layer.dropout, seed=_Drawn(seed)
        )
    attended = weighted_values(dropped, value)
    if position is not None and position.values is not None:
        addition = _check_hook(
            position,
            "values",
            position.values(dropped, queries.positions, keys.positions),
            (*query.shape[:3], value.shape[-1]),
        )
        if addition is not None:
            attended += ops.cast(addition, layer.compute_dtype)
    return attended, weights


class _Drawn(keras.random.SeedGenerator):
    """A seed that has been drawn already, as Keras takes it."""

    # Needed by Keras's PyTorch backend, whose dropout ignores the seed.
    _initial_seed = None

    def __init__(self, seed: Any) -> None:
        self._seed = seed  # without a variable, which the base class has

    def next(self, ordered: bool = True) -> Any:
        return self._seed


def _bias(
    position: AttentionPosition | None,
    between: Any,
    query: Any,
    key: Any,
    value: Any,
    *places: Any,
) -> Any:
    """Returns the terms that a position adds to the scores, or None."""
    if position is None:
        return None
    queries, keys, mask = between
    shape = (*query.shape[:3], key.shape[2])
    bias = None
    if position.bias is not None:
        bias = position.bias(query, key, queries.positions, keys.positions)
        bias = _check_hook(position, "bias", bias, shape)
    if position.contextual_bias is not None:
        more = position.contextual_bias(
            query, key, mask, *(places or (None, None))
        )
        more = _check_hook(position, "contextual_bias", more, shape)
        bias = more if bias is None else bias + more
    return bias


def _check_hook(
    position: AttentionPosition,
    hook: str,
    result: Any,
    expected: Any,
    broadcasts: bool = True,
) -> Any:
    """Returns a hook's result; raise `ValueError` if its shape is wrong.

    Broadcasting would often accept another shape without an error.
    """
    if result is None:  # it adds nothing in this call
        return None
    result = ops.convert_to_tensor(result)
    if len(result.shape) == 0 and broadcasts:
        return result
    shape, expected = tuple(result.shape), tuple(expected)
    if len(shape) == len(expected) and all(
        size is None or wanted in (None, size) or (broadcasts and size == 1)
        for size, wanted in zip(shape, expected, strict=True)
    ):
        return result
    raise ValueError(
        f"The hook `{hook}` of {type(position).__name__} '{position.name}' "
        f"must return {'what broadcasts to ' * broadcasts}shape {expected}. "
        f"Received: shape {shape}"
    )
