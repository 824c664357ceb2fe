"""Operators that a format lacks, written by others that it has.

Each is a function of tensors. A node of such an operator becomes a call of the
function's graph, which both converters inline.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np


def decompose(
    nodes: Iterable[Any], library: Any, operators: Collection[str]
) -> bool:
    """Turns nodes of some operators into calls of functions, in place.

    Args:
        nodes: The nodes outside of functions, as a `GraphDef` has them.
        library: The functions, to which more are added.
        operators: The names of operators. Those that are not in this file
            stay.

    Returns:
        Whether there was such a node.
    """
    wanted = {*operators} & {*_FUNCTIONS}
    siblings = {node.name: node for node in nodes}
    found = [(node, siblings) for node in nodes if node.op in wanted]
    for function in list(library.function):
        siblings = {node.name: node for node in function.node_def}
        own = [node for node in function.node_def if node.op in wanted]
        found += [(node, siblings) for node in own]
        # A function's body names the outputs of its nodes, and a graph
        # numbers them.
        names = {node.name for node in own}

        def renamed(tensor: str, names: Collection[str] = names) -> str:
            name, _, output = tensor.partition(":")
            if not output or name not in names:
                return tensor
            return f"{name}:output:{output.rpartition(':')[2]}"

        for node in function.node_def:
            node.input[:] = map(renamed, node.input)
        for key, tensor in list(function.ret.items()):
            function.ret[key] = renamed(tensor)
    for node, siblings in found:
        _call(node, siblings, library)
    return bool(found)


def _call(node: Any, siblings: Mapping[str, Any], library: Any) -> None:
    """Makes a node a call of the function for its operator."""
    import tensorflow as tf

    function, kinds = _FUNCTIONS[node.op]
    attributes = {name: _plain(value) for name, value in node.attr.items()}
    attributes["constants"] = [
        _constant(siblings.get(name.partition(":")[0]))
        for name in node.input
        if not name.startswith("^")
    ]
    if node.op == "Roll" and attributes["constants"][2] is None:
        return  # along axes that the graph computes
    specs = [
        # Files leave out attributes that have their default.
        tf.TensorSpec(
            None, node.attr[kind].type if kind in node.attr else default
        )
        for kind, default in kinds
    ]

    @tf.function(input_signature=specs, autograph=False)
    def body(*tensors: Any) -> Any:
        return function(attributes, *tensors)

    traced = body.get_concrete_function()
    graph = traced.graph.as_graph_def()
    library.function.extend([traced.function_def, *graph.library.function])
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["f"].func.name = traced.function_def.signature.name
    node.attr["Tin"].list.type.extend(
        each.dtype.as_datatype_enum for each in specs
    )
    node.attr["Tout"].list.type.extend(
        each.dtype.as_datatype_enum for each in traced.outputs
    )


def _constant(node: Any) -> Any:
    """Returns the values of a constant, or None."""
    import tensorflow as tf

    if node is None or node.op != "Const":
        return None
    return tf.make_ndarray(node.attr["value"].tensor)


def _plain(value: Any) -> Any:
    """Returns the value of a node's attribute."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return [*value.list.i] or [*value.list.f]
    return getattr(value, kind) if kind else None


def _erf(_: Any, x: Any) -> Any:
    """The rational approximation of Eigen, which TensorFlow uses."""
    import tensorflow as tf

    x = tf.clip_by_value(x, -4.0, 4.0)
    square = x * x
    top = bottom = tf.zeros_like(x)
    for each in (
        *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06),
        *(-5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03),
        -1.60960333262415e-02,
    ):
        top = top * square + each
    for each in (
        *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
        *(-7.37332916720468e-03, -1.42647390514189e-02),
    ):
        bottom = bottom * square + each
    return x * top / bottom


def _halves(x: Any) -> tuple[Any, Any]:
    """Returns half of exp(x) and of exp(-x), which overflow as cosh does."""
    import tensorflow as tf

    up, down = tf.exp(0.5 * x), tf.exp(-0.5 * x)
    return 0.5 * up * up, 0.5 * down * down


def _expm1(_: Any, x: Any) -> Any:
    """exp(x) - 1, corrected for the rounding of exp(x) (Kahan)."""
    import tensorflow as tf

    y = tf.exp(x)
    is_small = tf.abs(x) < 0.5
    safe = tf.where(is_small & (y != 1.0), y, 2.0)
    near = tf.where(y == 1.0, x, (safe - 1.0) * x / tf.math.log(safe))
    return tf.where(is_small, near, y - 1.0)


def _log1p(_: Any, x: Any) -> Any:
    """log(1 + x), corrected for the rounding of 1 + x (Kahan)."""
    import tensorflow as tf

    y = x + 1.0
    is_small = tf.abs(x) < 0.5
    safe = tf.where(is_small & (y != 1.0), y, 2.0)
    near = tf.where(y == 1.0, x, tf.math.log(safe) * x / (safe - 1.0))
    return tf.where(is_small, near, tf.math.log(y))


def _asinh(_: Any, x: Any) -> Any:
    import tensorflow as tf

    size = tf.abs(x)
    most = tf.minimum(size, 1e9)  # beyond it the square would overflow
    root = tf.sqrt(most * most + 1.0)
    near = _log1p(None, most + most * most / (root + 1.0))
    far = tf.math.log(tf.maximum(size, 1.0)) + math.log(2.0)
    return tf.sign(x) * tf.where(size < 1e9, near, far)


def _acosh(_: Any, x: Any) -> Any:
    import tensorflow as tf

    return tf.math.log(x + tf.sqrt(x - 1.0) * tf.sqrt(x + 1.0))


def _roll(attributes: Any, x: Any, shift: Any, axis: Any) -> Any:
    """Reads from the place before, one axis after the other."""
    import tensorflow as tf

    _, shifts, axes = attributes["constants"]
    axes = np.reshape(axes, (-1,))
    shift = tf.reshape(shift if shifts is None else shifts, (-1,))
    shift = tf.cast(shift, "int32")
    for index, each in enumerate(map(int, axes)):
        size = tf.shape(x)[each]
        places = tf.math.floormod(tf.range(size) - shift[index], size)
        x = tf.gather(x, places, axis=each)
    return x


def _bucketize(attributes: Any, x: Any) -> Any:
    """Counts the boundaries that are not above each number."""
    import tensorflow as tf

    if x.dtype != "float64":  # of integers, too, as TensorFlow compares them
        x = tf.cast(x, "float32")
    limits = tf.constant(attributes["boundaries"], x.dtype)
    is_above = tf.expand_dims(x, -1) >= limits
    return tf.reduce_sum(tf.cast(is_above, "int32"), axis=-1)


def _bincount(attributes: Any, x: Any, size: Any, weights: Any) -> Any:
    """Counts the ids of each row."""
    import tensorflow as tf

    found = tf.one_hot(x, tf.cast(size, "int32"), dtype=weights.dtype)
    given = attributes["constants"][2]
    if attributes.get("binary_output"):
        return tf.maximum(tf.reduce_max(found, axis=-2), 0)
    if given is None or given.size:
        found *= tf.expand_dims(weights, -1)
    return tf.reduce_sum(found, axis=-2)


def _bound(below: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(attributes: Any, limits: Any, values: Any) -> Any:
        """Counts the sorted numbers of a row below each value."""
        import tensorflow as tf

        counted = below(tf.expand_dims(limits, 1), tf.expand_dims(values, 2))
        dtype = tf.as_dtype(attributes.get("out_type") or tf.int32)
        return tf.reduce_sum(tf.cast(counted, dtype), axis=-1)

    return function


def _in_top_k(_: Any, scores: Any, targets: Any, k: Any) -> Any:
    """Counts the scores above the target's, which has to be finite."""
    import tensorflow as tf

    places = tf.range(tf.shape(scores)[1], dtype=targets.dtype)
    is_target = places == tf.expand_dims(targets, 1)
    score = tf.reduce_sum(tf.where(is_target, scores, 0.0), -1, keepdims=True)
    above = tf.reduce_sum(tf.cast(scores > score, k.dtype), axis=-1)
    is_finite = tf.abs(tf.squeeze(score, 1)) < float("inf")
    return (above < k) & tf.reduce_any(is_target, axis=-1) & is_finite


def _pool_3d(pool: str) -> Callable[..., Any]:
    def function(attributes: Any, x: Any) -> Any:
        """Pools height and width, and then depth, with 4 axes each."""
        import tensorflow as tf

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
            x,
            tf.concat([[-1], tf.shape(x)[1:2], small[1:3], channels], 0),
        )

    return function


_FLOAT = [("T", "float32")]


def _of_one(
    compute: Callable[[Any, Any], Any],
) -> tuple[Any, list[tuple[str, str]]]:
    """An operator of one float, by a function of TensorFlow and of it."""

    def function(_: Any, x: Any) -> Any:
        import tensorflow as tf

        return compute(tf, x)

    return function, _FLOAT


def _abs(_: Any, x: Any) -> Any:
    import tensorflow as tf

    return tf.abs(x) if x.dtype.is_floating else tf.maximum(x, -x)


def _sign(_: Any, x: Any) -> Any:
    import tensorflow as tf

    if x.dtype.is_floating:
        return tf.sign(x)
    return tf.cast(x > 0, x.dtype) - tf.cast(x < 0, x.dtype)


# With the attribute that has the dtype of each input, and its default.
_FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[str, str]]]] = {
    "Abs": (_abs, _FLOAT),
    "Acos": _of_one(lambda tf, x: tf.atan2(tf.sqrt((1.0 - x) * (1.0 + x)), x)),
    "Acosh": (_acosh, _FLOAT),
    "Asin": _of_one(lambda tf, x: tf.atan2(x, tf.sqrt((1.0 - x) * (1.0 + x)))),
    "Asinh": (_asinh, _FLOAT),
    "Atan": _of_one(lambda tf, x: tf.atan2(x, tf.ones_like(x))),
    "Atanh": _of_one(lambda tf, x: 0.5 * (_log1p(None, x) - _log1p(None, -x))),
    "AvgPool3D": (_pool_3d("avg_pool2d"), _FLOAT),
    "Bucketize": (_bucketize, _FLOAT),
    "Cosh": _of_one(lambda tf, x: sum(_halves(x))),
    "DenseBincount": (
        _bincount,
        [*2 * [("Tidx", "int32")], ("T", "float32")],
    ),
    "EnsureShape": _of_one(lambda tf, x: tf.identity(x)),
    "Erf": (_erf, _FLOAT),
    "Erfc": _of_one(lambda tf, x: 1.0 - _erf(None, x)),
    "Expm1": (_expm1, _FLOAT),
    "InTopKV2": (_in_top_k, [("", "float32"), *2 * [("T", "int32")]]),
    "Log1p": (_log1p, _FLOAT),
    "LowerBound": (_bound(lambda limits, x: limits < x), 2 * _FLOAT),
    "MaxPool3D": (_pool_3d("max_pool2d"), _FLOAT),
    "Roll": (_roll, [*_FLOAT, ("Tshift", "int32"), ("Taxis", "int32")]),
    "Sign": (_sign, _FLOAT),
    "Sinh": _of_one(lambda tf, x: _halves(x)[0] - _halves(x)[1]),
    "Tan": _of_one(lambda tf, x: tf.sin(x) / tf.cos(x)),
    "UpperBound": (_bound(lambda limits, x: limits <= x), 2 * _FLOAT),
}
