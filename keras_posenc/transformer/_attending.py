"""The part of attention between its projections, for all layers."""

from typing import Any

import keras
from keras import ops

from keras_posenc.keras_internals import (
    has_static_shapes,
    is_compiled_by_xla,
    traced_once,
)
from keras_posenc.ops.attention import (
    attend,
    attention_weights,
    in_blocks,
    swap_heads,
    weighted_values,
)
from keras_posenc.ops.masks import Side
from keras_posenc.ops.recomputable import recomputed
from keras_posenc.positional.attention_position import AttentionPosition
from keras_posenc.transformer._context import Context
from keras_posenc.transformer._sublayers import project


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
    `return_attention_scores` a pair of it and the weights.

    Args:
        layer: With `attention_position`, `dropout`, `dropout_layer` and
            `output_projection`.
        query: `(batch, heads, query, dim)`, scaled and rotated.
        key: `(batch, key_value_heads, key, dim)`, rotated.
        value: `(batch, key_value_heads, key, head_dim)`.
        context: The tokens of both sides, and the mask between them.
        places: What `places_of` returned.
        return_attention_scores: As in a call.
        training: As in a call.
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
        return recomputed(of_rows, *given, values=values)

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
