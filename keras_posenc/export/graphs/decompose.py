"""Operators that a format lacks, as functions of others that it has.

They take TensorFlow, the node's attributes and its inputs, and return None to
leave the node as it is.
"""

import functools
import hashlib
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Functions = Mapping[str, Callable[..., Any]]

# Graphs of functions by what they were made of, for the next exports too:
# tracing them is a tenth of a small one.
_TRACED: dict[Any, Any] = {}


def decompose(library: Any, functions: Functions) -> None:
    """Puts functions in the place of operators, in a `GraphDef`'s library.

    Not as calls: converters infer no shapes through these. The attributes of a
    node have also the `constants` and `shapes` of its inputs.
    """
    made: dict[Any, Any] = {}
    for body in library.function:
        siblings = {node.name: node for node in body.node_def}
        found = []
        for node in siblings.values():
            if node.op in functions:  # they have no effects to wait for
                node.input[:] = [x for x in node.input if not x.startswith("^")]
                constants = [_constant(each, siblings) for each in node.input]
                shapes = [_shape(each, siblings) for each in node.input]
                found.append((node, constants, shapes))
        changed = set()
        for node, constants, shapes in found:
            known = {"constants": constants, "shapes": shapes}
            attributes = [
                (name, value.SerializeToString(deterministic=True))
                for name, value in sorted(node.attr.items())
            ]
            content = pickle.dumps([node.op, attributes, known])
            key = functions[node.op], hashlib.sha256(content).digest()
            if key not in _TRACED:
                _TRACED[key] = _traced(node, known, functions[node.op])
            made[key] = _TRACED[key]
            if made[key] is not None:
                _inline(node, body, made[key][0])
                changed.add(node.name)

        def renamed(tensor: str, changed: set[str] = changed) -> str:
            name, _, output = tensor.partition(":")
            return f"{name}:output:0" if output and name in changed else tensor

        for node in body.node_def:
            node.input[:] = map(renamed, node.input)
        for name, tensor in list(body.ret.items()):
            body.ret[name] = renamed(tensor)
    for _, within in filter(None, made.values()):
        library.function.extend(within)


def _inline(node: Any, body: Any, function: Any) -> None:
    """Makes a node the result of a function, whose nodes come before it."""
    names = (each.name for each in function.signature.input_arg)
    arguments = dict(zip(names, node.input, strict=True))
    start = f"{node.name}/within/"

    def source(tensor: str) -> str:
        if tensor.startswith("^"):
            return f"^{start}{tensor[1:]}"
        return arguments.get(tensor, start + tensor)

    for each in function.node_def:
        new = body.node_def.add()
        new.CopyFrom(each)
        new.name = start + each.name
        new.input[:] = map(source, each.input)
    (result,) = function.signature.output_arg
    node.op = "Identity"
    node.input[:] = [source(function.ret[result.name])]
    node.attr.clear()
    node.attr["T"].type = result.type


def _traced(node: Any, known: Mapping[str, Any], function: Any) -> Any:
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    operator = op_def_registry.get(node.op)
    # Files leave out attributes that have their default.
    given = {each.name: each.default_value for each in operator.attr}
    given |= node.attr
    specs = [
        tf.TensorSpec(None, each.type or given[each.type_attr].type)
        for each in operator.input_arg
        for _ in range(given[each.number_attr].i if each.number_attr else 1)
    ]
    attributes = {name: _plain(value) for name, value in given.items()}

    @tf.function(input_signature=specs, autograph=False)
    def body(*tensors: Any) -> Any:
        return function(tf, {**attributes, **known}, *tensors)

    traced = body.get_concrete_function()
    if not traced.outputs:
        return None
    within = traced.graph.as_graph_def().library.function
    return traced.function_def, [*within]


def _constant(name: str, siblings: Mapping[str, Any]) -> Any:
    """Returns the values of a constant, or of several in a Pack, or None."""
    import tensorflow as tf

    node = siblings.get(name.partition(":")[0])
    if node is not None and node.op == "Const":
        return tf.make_ndarray(node.attr["value"].tensor)
    if node is not None and node.op == "Pack":
        parts = [_constant(each, siblings) for each in node.input]
        if not any(part is None for part in parts):
            # To read an attribute that is missing would add it.
            has_axis = "axis" in node.attr
            return np.stack(parts, node.attr["axis"].i if has_axis else 0)
    return None


def _shape(name: str, siblings: Mapping[str, Any]) -> list[int]:
    """Returns the sizes of a node's one output; none if one is not known."""
    node = siblings.get(name.partition(":")[0])
    if node is None or "_output_shapes" not in node.attr:
        return []
    shapes = node.attr["_output_shapes"].list.shape
    if len(shapes) != 1:  # the name may be of any of them
        return []
    sizes = [dim.size for dim in shapes[0].dim]
    return [] if -1 in sizes else sizes


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "list":
        return [*value.list.i] or [*value.list.f] or [*value.list.shape]
    return getattr(value, kind) if kind else None


def _abs(tf: Any, _: Any, x: Any) -> Any:
    return tf.abs(x) if x.dtype.is_floating else tf.maximum(x, -x)


def _sign(tf: Any, _: Any, x: Any) -> Any:
    if x.dtype.is_floating:
        return tf.sign(x)
    return tf.cast(x > 0, x.dtype) - tf.cast(x < 0, x.dtype)


def _erf(tf: Any, _: Any, x: Any) -> Any:
    """The rational approximation of Eigen, which TensorFlow uses."""
    x = tf.clip_by_value(x, -4.0, 4.0)
    square = x * x
    top, bottom = (
        functools.reduce(lambda total, each: total * square + each, parts, 0.0)
        for parts in (
            (
                *(-2.72614225801306e-10, 2.77068142495902e-08),
                *(-2.10102402082508e-06, -5.69250639462346e-05),
                *(-7.34990630326855e-04, -2.95459980854025e-03),
                -1.60960333262415e-02,
            ),
            (
                *(-1.45660718464996e-05, -2.13374055278905e-04),
                *(-1.68282697438203e-03, -7.37332916720468e-03),
                -1.42647390514189e-02,
            ),
        )
    )
    return x * top / bottom


def _expm1(tf: Any, _: Any, x: Any) -> Any:
    """exp(x) - 1, corrected for the rounding of exp(x) (Kahan)."""
    y = tf.exp(x)
    is_small = tf.abs(x) < 0.5
    safe = tf.where(is_small & (y != 1.0), y, 2.0)
    near = tf.where(y == 1.0, x, (safe - 1.0) * x / tf.math.log(safe))
    return tf.where(is_small, near, y - 1.0)


def _log1p(tf: Any, _: Any, x: Any) -> Any:
    """log(1 + x), corrected for the rounding of 1 + x (Kahan)."""
    y = x + 1.0
    is_small = tf.abs(x) < 0.5
    safe = tf.where(is_small & (y != 1.0), y, 2.0)
    near = tf.where(y == 1.0, x, tf.math.log(safe) * x / (safe - 1.0))
    return tf.where(is_small, near, tf.math.log(y))


def _roll(tf: Any, attributes: Any, x: Any, shift: Any, axis: Any) -> Any:
    """Reads from the place before, one axis after the other."""
    _, shifts, axes = attributes["constants"]
    if axes is None:  # the graph computes them
        return None
    shift = tf.reshape(shift if shifts is None else shifts, (-1,))
    shift = tf.cast(shift, "int32")
    for index, each in enumerate(map(int, axes.flat)):
        size = tf.shape(x)[each]
        places = tf.math.floormod(tf.range(size) - shift[index], size)
        x = tf.gather(x, places, axis=each)
    return x


def _bucketize(tf: Any, attributes: Any, x: Any) -> Any:
    """Counts the boundaries that are not above each number."""
    if x.dtype != "float64":  # of integers, too, as TensorFlow compares them
        x = tf.cast(x, "float32")
    limits = tf.constant(attributes["boundaries"], x.dtype)
    is_above = tf.expand_dims(x, -1) >= limits
    return tf.reduce_sum(tf.cast(is_above, "int32"), axis=-1)


def _bincount(tf: Any, attributes: Any, x: Any, size: Any, weights: Any) -> Any:
    """Counts the ids of each row."""
    found = tf.one_hot(x, tf.cast(size, "int32"), dtype=weights.dtype)
    given = attributes["constants"][2]
    if attributes["binary_output"]:
        return tf.maximum(tf.reduce_max(found, axis=-2), 0)
    if given is None or given.size:
        found *= tf.expand_dims(weights, -1)
    return tf.reduce_sum(found, axis=-2)


def einsum(tf: Any, attributes: Any, x: Any, *others: Any) -> Any:
    """A product of matrices with merged axes, as of "abc,bcde->ade"."""
    equation = attributes["equation"].decode().replace(" ", "")
    operands, _, result = equation.partition("->")
    left, _, right = operands.partition(",")
    count = len({*left} & {*right})  # of axes that are summed over
    shape = attributes["shapes"][-1]
    if not (
        0 < count < len(right) == len(shape)
        and left[-count:] == right[:count]
        and result == left[:-count] + right[count:]
        and len({*left}) == len(left)
        and len({*right}) == len(right)
    ):
        return None
    (kernel,) = others
    kept = tf.shape(x)[: len(left) - count]
    x = tf.reshape(x, tf.concat([kept, [-1]], 0)) if count > 1 else x
    x = tf.matmul(x, tf.reshape(kernel, (math.prod(shape[:count]), -1)))
    return tf.reshape(x, tf.concat([kept, shape[count:]], 0))


def _floor_divide(tf: Any, _: Any, x: Any, y: Any) -> Any:
    """One less than the quotient rounded towards 0, if a rest is left."""
    if x.dtype.is_floating:
        return None
    quotient = tf.truncatediv(x, y)
    return quotient - tf.cast(_is_beyond(x - quotient * y, y), x.dtype)


def _floor_mod(tf: Any, _: Any, x: Any, y: Any) -> Any:
    rest = tf.raw_ops.TruncateMod(x=x, y=y)
    return tf.where(_is_beyond(rest, y), rest + y, rest)


def _is_beyond(rest: Any, y: Any) -> Any:
    return (rest != 0) & ((rest < 0) != (y < 0))


def _mean(tf: Any, attributes: Any, x: Any, _: Any) -> Any:
    """Sums axis by axis: ONNX Runtime adds one by one, and rounds each time."""
    given = attributes["constants"][1]
    if not x.dtype.is_floating or given is None or given.size < 2:
        return None
    axes = [*map(int, given)]
    for axis in axes:
        x = tf.reduce_mean(x, axis, keepdims=True)
    return x if attributes["keep_dims"] else tf.squeeze(x, axes)


def _one_hot(
    tf: Any, attributes: Any, ids: Any, depth: Any, on: Any, off: Any
) -> Any:
    """Gives ids below 0 no place, where ONNX counts from the end."""
    ids = tf.cast(ids, "int64")
    ids = tf.where(ids < 0, np.int64(2**31), ids)
    return tf.one_hot(ids, depth, on, off, axis=attributes["axis"])


def _sum(tf: Any, attributes: Any, x: Any, axes: Any) -> Any:
    """Lets a sum overflow. ONNX Runtime adds as floats: so in two parts."""

    def added(x: Any) -> Any:
        return tf.reduce_sum(x, axes, keepdims=attributes["keep_dims"])

    if x.dtype == "int32":
        return tf.cast(added(tf.cast(x, "int64")), x.dtype)
    if x.dtype != "int64":
        return None
    high = tf.truncatediv(x, 2**32)
    return added(high) * 2**32 + added(x - high * 2**32)


def _pool_3d(pool: str) -> Callable[..., Any]:
    def function(tf: Any, attributes: Any, x: Any) -> Any:
        """Pools height and width, and then depth, with 4 axes each."""
        depth, *plane = attributes["ksize"][1:4]
        step, *steps = attributes["strides"][1:4]
        padding = attributes["padding"].decode()
        run = getattr(tf.nn, pool)
        shape = tf.shape(x)
        x = tf.reshape(x, tf.concat([[-1], shape[2:]], 0))
        x = run(x, plane, steps, padding)
        small = tf.shape(x)
        channels = shape[4:]
        flat = tf.reduce_prod(small[1:3], keepdims=True)
        x = tf.reshape(x, tf.concat([[-1], shape[1:2], flat, channels], 0))
        x = run(x, [depth, 1], [step, 1], padding)
        return tf.reshape(
            x, tf.concat([[-1], tf.shape(x)[1:2], small[1:3], channels], 0)
        )

    return function


FUNCTIONS: Functions = {
    "Abs": _abs,
    "Acos": lambda tf, _, x: tf.atan2(tf.sqrt((1.0 - x) * (1.0 + x)), x),
    "Asin": lambda tf, _, x: tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x))),
    "Atan": lambda tf, _, x: tf.atan2(x, tf.ones_like(x)),
    "AvgPool3D": _pool_3d("avg_pool2d"),
    "Bucketize": _bucketize,
    "DenseBincount": _bincount,
    "Einsum": einsum,
    "EnsureShape": lambda tf, _, x: tf.identity(x),
    "Erf": _erf,
    "Erfc": lambda tf, _, x: 1.0 - _erf(tf, _, x),
    "Expm1": _expm1,
    "FloorDiv": _floor_divide,
    "FloorMod": _floor_mod,
    "Log1p": _log1p,
    "MaxPool3D": _pool_3d("max_pool2d"),
    "Mean": _mean,
    "OneHot": _one_hot,
    "Roll": _roll,
    "Sign": _sign,
    "Sum": _sum,
    "Tan": lambda tf, _, x: tf.sin(x) / tf.cos(x),
}
