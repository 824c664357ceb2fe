"""Operators that a format lacks, written by others that it has.

Each is a function of tensors, whose graph takes the place of a node.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def decompose(
    nodes: Iterable[Any],
    library: Any,
    operators: Collection[str],
    functions: Mapping[str, Any] | None = None,
) -> bool:
    """Turns nodes of some operators into calls of functions, in place.

    Args:
        nodes: The nodes outside of functions, as a `GraphDef` has them.
        library: The functions, to which more are added.
        operators: The names of operators. Those that are not in this file
            stay, and those for which a function gives None.
        functions: Others than those in this file, in the same form.

    Returns:
        Whether there was such a node.
    """
    functions = _FUNCTIONS if functions is None else functions
    wanted = {*operators} & {*functions}
    made: dict[Any, Any] = {}

    def called(nodes: Iterable[Any]) -> set[str]:
        """Returns the names of nodes that now are calls."""
        siblings = {node.name: node for node in nodes}
        for node in siblings.values():
            if node.op in wanted:  # they have no effects to wait for
                inputs = [x for x in node.input if not x.startswith("^")]
                node.input[:] = inputs
        found = [
            (
                node,
                [_constant(each, siblings) for each in node.input],
                [_shape(each, siblings) for each in node.input],
            )
            for node in siblings.values()
            if node.op in wanted
        ]
        return {
            node.name
            for node, constants, shapes in found
            if _is_called(node, constants, shapes, functions[node.op], made)
        }

    is_any = bool(called(nodes))
    for function in library.function:
        names = called(function.node_def)
        is_any = is_any or bool(names)

        # A function's body names the outputs of its nodes, and a graph
        # numbers them.
        def renamed(tensor: str, names: Collection[str] = names) -> str:
            name, _, output = tensor.partition(":")
            if not output or name not in names:
                return tensor
            return f"{name}:output:{output.rpartition(':')[2]}"

        for node in function.node_def:
            node.input[:] = map(renamed, node.input)
        for key, tensor in list(function.ret.items()):
            function.ret[key] = renamed(tensor)
        for node in [x for x in function.node_def if x.name in names]:
            _inline(node, function, made.values())
    for traced in filter(None, made.values()):
        graph = traced.graph.as_graph_def()
        library.function.extend([traced.function_def, *graph.library.function])
    return is_any


def _is_called(
    node: Any,
    constants: Sequence[Any],
    shapes: Sequence[Any],
    function: tuple[Callable[..., Any], list[tuple[str, str]]],
    made: dict[Any, Any],
) -> bool:
    """Makes a node a call of its function, unless that leaves it as it is.

    Args:
        node: The node.
        constants: The values of its inputs, where they are constants.
        shapes: The sizes of its inputs, where they are known.
        function: The function of tensors, and the dtypes of these.
        made: Functions that were traced, by what they depend on.
    """
    key = (
        node.op,
        *(
            (name, value.SerializeToString(deterministic=True))
            for name, value in sorted(node.attr.items())
        ),
        *(each if each is None else each.tobytes() for each in constants),
        *map(tuple, shapes),
    )
    if key not in made:
        made[key] = _traced(node, constants, shapes, *function)
    traced = made[key]
    if traced is None:
        return False
    node.op = "PartitionedCall"
    node.attr.clear()
    node.attr["f"].func.name = traced.function_def.signature.name
    for name, tensors in (("Tin", traced.inputs), ("Tout", traced.outputs)):
        node.attr[name].list.type.extend(
            each.dtype.as_datatype_enum for each in tensors
        )
    return True


def _inline(node: Any, function: Any, made: Iterable[Any]) -> None:
    """Puts what a node calls in its place.

    Converters infer no shapes through calls, of which loops need some.
    """
    name = node.attr["f"].func.name
    (body,) = (
        each.function_def
        for each in made
        if each is not None and each.function_def.signature.name == name
    )
    names = (each.name for each in body.signature.input_arg)
    arguments = dict(zip(names, node.input, strict=True))

    start = f"{node.name}/within/"

    def source(tensor: str) -> str:
        if tensor.startswith("^"):
            return f"^{start}{tensor[1:]}"
        return arguments.get(tensor, start + tensor)

    for each in body.node_def:
        new = function.node_def.add()
        new.CopyFrom(each)
        new.name = start + each.name
        new.input[:] = map(source, each.input)
    (result,) = body.signature.output_arg
    node.op = "Identity"
    node.input[:] = [source(body.ret[result.name])]
    node.attr.clear()
    node.attr["T"].type = result.type


def _traced(
    node: Any, constants: Any, shapes: Any, function: Any, kinds: Any
) -> Any:
    """Returns the function for a node, or None if it stays as it is."""
    import tensorflow as tf

    attributes = {name: _plain(value) for name, value in node.attr.items()}
    attributes |= {"constants": constants, "shapes": shapes}
    specs = [
        # Files leave out attributes that have their default.
        tf.TensorSpec(
            None, node.attr[kind].type if kind in node.attr else default
        )
        for kind, default in kinds * (attributes.get("N") or 1)
    ]

    @tf.function(input_signature=specs, autograph=False)
    def body(*tensors: Any) -> Any:
        return function(attributes, *tensors)

    traced = body.get_concrete_function()
    return traced if traced.outputs else None


def _constant(name: str, siblings: Mapping[str, Any]) -> Any:
    """Returns the values of a constant, or of several in a Pack, or None."""
    import tensorflow as tf

    node = siblings.get(name.partition(":")[0])
    if node is not None and node.op == "Const":
        return tf.make_ndarray(node.attr["value"].tensor)
    if node is not None and node.op == "Pack":
        parts = [_constant(each, siblings) for each in node.input]
        if not any(part is None for part in parts):
            return np.stack(parts, node.attr["axis"].i)
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
    """Returns the value of a node's attribute."""
    kind = value.WhichOneof("value")
    if kind == "list":
        return [*value.list.i] or [*value.list.f] or [*value.list.shape]
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
    if axes is None:  # the graph computes them
        return None
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


def _einsum(attributes: Any, x: Any, *others: Any) -> Any:
    """A product of matrices, whose axes are merged."""
    import tensorflow as tf

    count = _summed(attributes)
    if not count:
        return None
    (kernel,) = others
    shape = attributes["shapes"][1]
    operands = attributes["equation"].decode().replace(" ", "")
    kept = tf.shape(x)[: operands.index(",") - count]
    x = tf.reshape(x, tf.concat([kept, [-1]], 0)) if count > 1 else x
    x = tf.matmul(x, tf.reshape(kernel, (math.prod(shape[:count]), -1)))
    return tf.reshape(x, tf.concat([kept, shape[count:]], 0))


def _summed(attributes: Any) -> int:
    """Returns how many axes are summed over, or 0 if it is no plain product.

    As in "abc,bcde->ade", where the second operand is of a known shape.
    """
    equation = attributes["equation"].decode().replace(" ", "")
    operands, _, result = equation.partition("->")
    left, _, right = operands.partition(",")
    count = len({*left} & {*right})
    is_product = (
        0 < count < len(right) == len(attributes["shapes"][-1])
        and left[-count:] == right[:count]
        and result == left[:-count] + right[count:]
        and len({*left}) == len(left)
        and len({*right}) == len(right)
    )
    return count if is_product else 0


def _floor_divide(_: Any, x: Any, y: Any) -> Any:
    """One less than the quotient rounded towards 0, if a rest is left."""
    import tensorflow as tf

    if x.dtype.is_floating:
        return None
    quotient = tf.truncatediv(x, y)
    return quotient - tf.cast(_is_beyond(x - quotient * y, y), x.dtype)


def _floor_mod(_: Any, x: Any, y: Any) -> Any:
    import tensorflow as tf

    rest = tf.raw_ops.TruncateMod(x=x, y=y)
    return tf.where(_is_beyond(rest, y), rest + y, rest)


def _is_beyond(rest: Any, y: Any) -> Any:
    return (rest != 0) & ((rest < 0) != (y < 0))


def _mean(attributes: Any, x: Any, _: Any) -> Any:
    """Sums axis by axis.

    ONNX Runtime adds numbers one by one, so that the sum of n equal ones, as of
    an image of one color, may be off by n roundings.
    """
    import tensorflow as tf

    given = attributes["constants"][1]
    if not x.dtype.is_floating or given is None or given.size < 2:
        return None
    axes = [*map(int, given)]
    for axis in axes:
        x = tf.reduce_mean(x, axis, keepdims=True)
    return x if attributes.get("keep_dims") else tf.squeeze(x, axes)


def _one_hot(attributes: Any, ids: Any, depth: Any, on: Any, off: Any) -> Any:
    """Gives ids below 0 no place, where ONNX counts from the end."""
    import tensorflow as tf

    ids = tf.cast(ids, "int64")
    ids = tf.where(ids < 0, np.int64(2**31), ids)
    return tf.one_hot(ids, depth, on, off, axis=attributes.get("axis", -1))


def _sum(attributes: Any, x: Any, axes: Any) -> Any:
    """Lets a sum overflow, where ONNX Runtime keeps the largest integer."""
    import tensorflow as tf

    if x.dtype != "int32":
        return None
    keeps = bool(attributes.get("keep_dims"))
    total = tf.reduce_sum(tf.cast(x, "int64"), axes, keepdims=keeps)
    return tf.cast(total, x.dtype)


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
    "Einsum": (_einsum, _FLOAT),
    "EnsureShape": _of_one(lambda tf, x: tf.identity(x)),
    "Erf": (_erf, _FLOAT),
    "Erfc": _of_one(lambda tf, x: 1.0 - _erf(None, x)),
    "Expm1": (_expm1, _FLOAT),
    "FloorDiv": (_floor_divide, 2 * _FLOAT),
    "FloorMod": (_floor_mod, 2 * _FLOAT),
    "InTopKV2": (_in_top_k, [("", "float32"), *2 * [("T", "int32")]]),
    "Log1p": (_log1p, _FLOAT),
    "LowerBound": (_bound(lambda limits, x: limits < x), 2 * _FLOAT),
    "MaxPool3D": (_pool_3d("max_pool2d"), _FLOAT),
    "Mean": (_mean, [*_FLOAT, ("Tidx", "int32")]),
    "OneHot": (_one_hot, [("TI", "int64"), ("", "int32"), *2 * _FLOAT]),
    "Roll": (_roll, [*_FLOAT, ("Tshift", "int32"), ("Taxis", "int32")]),
    "Sign": (_sign, _FLOAT),
    "Sum": (_sum, [*_FLOAT, ("Tidx", "int32")]),
    "Sinh": _of_one(lambda tf, x: _halves(x)[0] - _halves(x)[1]),
    "Tan": _of_one(lambda tf, x: tf.sin(x) / tf.cos(x)),
    "UpperBound": (_bound(lambda limits, x: limits <= x), 2 * _FLOAT),
}
