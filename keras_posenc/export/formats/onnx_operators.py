"""Repairs and saves ONNX graphs that tf2onnx writes."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc_worker.wire import head

_MOST = 2**31 - 2**10  # bytes that readers of a message accept, with its head


def write_model(model: Any, values: Mapping[str, Any], path: Path) -> None:
    """Writes a model, followed by the values of initializers that have none.

    A message of protocol buffers is its fields one after the other, so weights
    can be written one by one. A single message would hold them all once more,
    and its bytes once more.

    Args:
        model: A `ModelProto`; its graph loses those initializers.
        values: The values of initializers that have only name, shape and dtype,
            by their names: variables or arrays.
        path: The file.

    Raises:
        ExportError: It is larger than a file can be; nothing is written.
    """
    import onnx

    graph = model.graph
    tensors = []
    for each in [each for each in graph.initializer if each.name in values]:
        value = values[each.name]
        size = math.prod(value.shape) * np.dtype(value.dtype).itemsize
        start = each.SerializeToString() + head(
            onnx.TensorProto.RAW_DATA_FIELD_NUMBER, size
        )
        number = onnx.GraphProto.INITIALIZER_FIELD_NUMBER
        start = head(number, len(start) + size) + start
        tensors.append((start, size, value))
        graph.initializer.remove(each)
    rest = graph.SerializeToString()
    whole = len(rest) + sum(len(start) + size for start, size, _ in tensors)
    around = type(model)()
    around.CopyFrom(model)
    around.ClearField("graph")
    outside = around.SerializeToString()
    # `check_size` has counted the weights, but not the other constants.
    if len(outside) + whole > _MOST:
        raise ExportError(
            f"The ONNX file would have {units.size(whole)}, and ONNX files "
            f"hold {units.size(_MOST)} at most: use export_saved_model"
        )
    with path.open("wb") as file:
        file.write(outside)
        file.write(head(onnx.ModelProto.GRAPH_FIELD_NUMBER, whole))
        file.write(rest)
        for start, _, value in tensors:
            file.write(start)
            array = np.ascontiguousarray(array_of(value))
            file.write(array.reshape(-1).view("uint8").data)


def array_of(value: Any) -> np.ndarray:
    """Returns the numbers of a variable or an array."""
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(keras.ops.convert_to_tensor(value))


EINSUM = "EinsumAsItIs"  # a name that tf2onnx does not know
_WHERE = ("float32", "float64", "int32", "int64")  # with a kernel for Where


def _einsum(context: Any, node: Any, *_: Any) -> None:
    """Writes Einsum as Transpose, as MatMul, or unchanged.

    tf2onnx would split it into operators whose shapes other importers cannot
    infer, with an Unsqueeze without axes, which OpenVINO does not read.
    """
    equation = node.get_attr_value("equation").decode().replace(" ", "")
    for name in list(node.attr):
        del node.attr[name]
    operands, _, result = equation.partition("->")
    left, _, right = operands.partition(",")
    if not right and sorted(left) == sorted(result) == sorted({*left}):
        node.type = "Transpose"
        node.set_attr("perm", [left.index(label) for label in result])
        return
    count = len({*left} & {*right})
    shape = context.get_shape(node.input[1]) if right else None
    if (
        0 < count < len(right)
        and left[-count:] == right[:count]
        and result == left[:-count] + right[count:]
        and len({*left}) == len(left)
        and len({*right}) == len(right)
        and shape is not None
        and -1 not in shape
    ):
        _product(context, node, len(left) - count, shape, count)
        return
    node.type = EINSUM
    node.set_attr("equation", equation)


def _product(
    context: Any, node: Any, rank: int, shape: list[int], count: int
) -> None:
    """Writes Einsum as a MatMul of operands whose axes are merged.

    ONNX Runtime then lays out weights once, and not at every call.

    Args:
        context: The graph.
        node: The node to replace.
        rank: Number of axes of the first operand that stay.
        shape: The shape of the second operand.
        count: Number of its first axes that are summed over.
    """

    def reshaped(tensor: str, sizes: list[int], **options: Any) -> str:
        wanted = context.make_const(
            f"{node.name}_{tensor}_shape", np.array(sizes, "int64")
        )
        made = context.make_node(
            "Reshape", [tensor, wanted.output[0]], **options
        )
        return str(made.output[0])

    kept = [0] * rank  # 0 keeps an axis
    first, second = node.input
    if count > 1:
        first = reshaped(first, [*kept, -1])
    if len(shape) > 2:
        second = reshaped(second, [int(np.prod(shape[:count])), -1])
    made = {
        "name": node.name,
        "outputs": list(node.output),
        "shapes": node.output_shapes,
        "dtypes": node.output_dtypes,
    }
    context.remove_node(node.name)
    if len(shape) == count + 1:
        context.make_node("MatMul", [first, second], **made)
    else:
        product = context.make_node("MatMul", [first, second])
        reshaped(product.output[0], [*kept, *shape[count:]], **made)


def _mean(context: Any, node: Any, *_: Any) -> None:
    """Writes a mean of several axes as one after the other.

    ONNX Runtime adds numbers one by one, so that the sum of n equal ones, as of
    an image of one colour, may be off by n roundings.
    """
    from tf2onnx.onnx_opset.reduction import ReduceOpBase

    def constant(axis: int) -> str:
        name = f"{node.name}_axis_{axis}"
        return str(
            context.make_const(name, np.array([axis], "int64")).output[0]
        )

    axes, rank = node.inputs[1], context.get_rank(node.input[0])
    is_float = "float" in _dtype(context, node.input[0]).name
    if is_float and axes.is_const() and rank is not None:
        values = np.ravel(axes.get_tensor_value(as_list=False))
        # The last ones first, so that the others keep their numbers.
        each = sorted({int(axis) % rank for axis in values}, reverse=True)
        for axis in each[:-1]:
            context.insert_new_node_on_input(
                node,
                "ReduceMean",
                [node.input[0], constant(axis)],
                keepdims=node.get_attr_value("keep_dims", 0),
            )
        if each:
            context.replace_input(node, node.input[1], constant(each[-1]), 1)
    node.type = "ReduceMean"
    ReduceOpBase.version_18(context, node)


def _erfc(context: Any, node: Any, *_: Any) -> None:
    """Writes Erfc, which ONNX lacks, as 1 - Erf."""
    one = context.make_const(
        f"{node.name}_one", np.ones((), _dtype(context, node.output[0]))
    )
    made = {
        "name": node.name,
        "outputs": list(node.output),
        "shapes": node.output_shapes,
        "dtypes": node.output_dtypes,
    }
    context.remove_node(node.name)
    erf = context.make_node("Erf", list(node.input))
    context.make_node("Sub", [one.output[0], erf.output[0]], **made)


def _select(context: Any, node: Any, *_: Any) -> None:
    """Writes a selection as Where; a product with 0 and 1 would spread NaN."""
    from tf2onnx.onnx_opset.controlflow import Select

    if _dtype(context, node.output[0]) in _WHERE:
        node.type = "Where"
    else:  # without NaN
        Select.version_7(context, node)


def _floor_divide(context: Any, node: Any, *_: Any) -> None:
    """Rounds quotients down; tf2onnx rounds those of integers towards 0."""
    from tf2onnx.onnx_opset.math import FloorDiv

    if _dtype(context, node.output[0]).kind not in "iu":
        FloorDiv.version_6(context, node)
        return
    from onnx import TensorProto

    inputs = list(node.input)
    (dtype,) = node.output_dtypes
    made = {"shapes": node.output_shapes, "dtypes": [dtype]}
    of_bool = {**made, "dtypes": [TensorProto.BOOL]}
    outputs = {"name": node.name, "outputs": list(node.output)}
    context.remove_node(node.name)
    # One less where the remainders of both ways to round differ. To subtract
    # the remainder first would overflow near the smallest integer.
    quotient = context.make_node("Div", inputs, **made)
    rests = [
        context.make_node("Mod", inputs, attr={"fmod": fmod}, **made).output[0]
        for fmod in (0, 1)
    ]
    same = context.make_node("Equal", rests, **of_bool)
    differs = context.make_node("Not", same.output, **of_bool)
    less = context.make_node("Cast", differs.output, attr={"to": dtype}, **made)
    context.make_node(
        "Sub", [quotient.output[0], less.output[0]], **outputs, **made
    )


def _floor_mod(context: Any, node: Any, *_: Any) -> None:
    """Writes the remainder of quotients that are rounded down.

    tf2onnx subtracts a product from floats, which leaves 0 of large ones.
    """
    if _dtype(context, node.output[0]).kind in "iu":
        node.type = "Mod"
        return
    from onnx import TensorProto

    of, by = node.input
    made = {"shapes": node.output_shapes, "dtypes": node.output_dtypes}
    outputs = {"name": node.name, "outputs": list(node.output)}
    context.remove_node(node.name)
    # Of the sign of the dividend: one divisor more where the signs differ.
    (rest,) = context.make_node(
        "Mod", [of, by], attr={"fmod": 1}, **made
    ).output
    signs = [context.make_node("Sign", [each]).output[0] for each in (rest, by)]
    product = context.make_node("Mul", signs, **made)
    zero = context.make_const(
        f"{outputs['name']}_zero", np.zeros((), _dtype(context, rest))
    )
    differ = context.make_node(
        "Less",
        [product.output[0], zero.output[0]],
        shapes=made["shapes"],
        dtypes=[TensorProto.BOOL],
    )
    more = context.make_node("Add", [rest, by], **made)
    context.make_node(
        "Where", [differ.output[0], more.output[0], rest], **outputs, **made
    )


# Integers that ONNX Runtime does not sort, as others that it does.
_SORTED = {
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "uint32": "int64",
}


def _compare(context: Any, node: Any, *_: Any) -> None:
    """Compares integers as integers, and reads signs without bits.

    tf2onnx casts integers to float32, which loses what is beyond 2**24.
    """
    from tf2onnx.onnx_opset.logical import GreaterLess

    if number := _of_sign_bit(node):
        _sign_bit(context, node, number)
        return
    dtype = _dtype(context, node.input[0])
    if dtype.kind not in "iu" or dtype == "uint64":
        GreaterLess.version_7(context, node)
    else:  # a loop's counter becomes int64, whatever it was
        for name in [*node.input]:
            _cast_input(context, node, name, "int64")
    node.type = node.type.replace("rE", "rOrE").replace("sE", "sOrE")


def _top_k(context: Any, node: Any, *_: Any) -> None:
    """Sorts integers as integers."""
    dtype = _dtype(context, node.output[0])
    indices = context.get_dtype(node.output[1])
    count = _cast_input(context, node, node.input[1], "int64")
    axes = context.make_const(f"{node.name}_axes", np.array([0], "int64"))
    one = context.make_node("Unsqueeze", [count, axes.output[0]])
    context.replace_input(node, count, one.output[0], 1)
    if dtype.name in _SORTED:
        _cast_input(context, node, node.input[0], _SORTED[dtype.name])
        _cast_output(context, node, 0, context.get_dtype(node.output[0]))
    node.type = "TopK"
    _cast_output(context, node, 1, indices)


def _one_hot(context: Any, node: Any, *_: Any) -> None:
    """Gives ids below 0 no place, where ONNX counts from the end."""
    from tf2onnx.onnx_opset.tensor import OneHot

    ids = _cast_input(context, node, node.input[0], "int64")
    zero, beyond = (
        context.make_const(f"{node.name}_{value}", np.int64(value)).output[0]
        for value in (0, 2**31)
    )
    negative = context.make_node("Less", [ids, zero]).output[0]
    place = context.make_node("Where", [negative, beyond, ids])
    context.copy_shape(ids, place.output[0])
    context.set_dtype(place.output[0], context.get_dtype(ids))
    context.replace_input(node, ids, place.output[0], 0)
    OneHot.version_11(context, node)


def _resize(context: Any, node: Any, *_: Any) -> None:
    """Resizes to sizes.

    tf2onnx writes factors where it knows the sizes, and those of float32 may
    give a pixel less, as from 5 to 9.
    """
    from tf2onnx.onnx_opset.nn import Resize

    image = node.input[0]
    shape = context.get_shape(image)
    if shape is not None:
        context.set_shape(image, [shape[0], -1, -1, shape[3]])
    Resize.version_11(context, node)
    if shape is not None:
        context.set_shape(image, shape)


def _sum(context: Any, node: Any, *_: Any) -> None:
    """Lets sums of int32 overflow, where ONNX Runtime keeps the largest."""
    from tf2onnx.onnx_opset.reduction import ReduceOpBase

    dtype = context.get_dtype(node.output[0])
    if _dtype(context, node.output[0]) == "int32":
        _cast_input(context, node, node.input[0], "int64")
        _cast_output(context, node, 0, dtype)
    node.type = "ReduceSum"
    ReduceOpBase.version_13(context, node)


def _of_sign_bit(node: Any) -> str | None:
    """Returns the float whose sign bit a comparison reads, or None.

    Keras reads it in `signbit`, and to have -0.0 below 0.0 in `argmax`.
    """
    if node.type != "Less":
        return None
    (bits, zero) = node.inputs
    if bits.type != "BitwiseAnd" or not zero.is_const():
        return None
    (number, mask) = bits.inputs
    if number.type != "Bitcast" or not mask.is_const():
        return None
    is_sign = mask.get_tensor_value() == -(2**31)
    return number.input[0] if is_sign else None


def _sign_bit(context: Any, node: Any, number: str) -> None:
    """Writes whether a float is below 0, or -0.0, whose reciprocal is."""
    zero, one = (
        context.make_const(
            f"{node.name}/constant_{value}", np.float32(value)
        ).output[0]
        for value in (0, 1)
    )
    is_zero = context.make_node("Equal", [number, zero]).output[0]
    inverse = context.make_node("Div", [one, number]).output[0]
    signed = context.make_node("Where", [is_zero, inverse, number]).output[0]
    context.replace_inputs(node, [signed, zero])


def _cast_input(context: Any, node: Any, name: str, dtype: str) -> str:
    """Casts an input of a node; returns its new name."""
    from onnx import helper

    cast = context.insert_new_node_on_input(
        node, "Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    )
    return str(cast.output[0])


def _cast_output(context: Any, node: Any, index: int, dtype: int) -> None:
    """Casts an output of a node, for all that read it."""
    name = node.output[index]
    cast = context.insert_new_node_on_output("Cast", name, to=dtype)
    context.set_dtype(cast.output[0], dtype)
    context.copy_shape(name, cast.output[0])


def _dtype(context: Any, tensor: str) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(context.get_dtype(tensor))


# Each with further arguments of its calls, as tf2onnx takes handlers.
HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "Einsum": (_einsum, []),
    "Erfc": (_erfc, []),
    "FloorDiv": (_floor_divide, []),
    "FloorMod": (_floor_mod, []),
    "Greater": (_compare, []),
    "GreaterEqual": (_compare, []),
    "Less": (_compare, []),
    "LessEqual": (_compare, []),
    "Mean": (_mean, []),
    "OneHot": (_one_hot, []),
    # Left, and refused: tf2onnx writes another interpolation.
    "ResizeArea": (lambda *_: None, []),
    "ResizeBilinear": (_resize, []),
    "ResizeNearestNeighbor": (_resize, []),
    "SelectV2": (_select, []),
    "Sum": (_sum, []),
    "TopKV2": (_top_k, []),
}


def with_values(
    graph: Any,
    values: Mapping[str, tuple[str, Any]],
    reserved: Iterable[str],
) -> tuple[list[str], dict[str, Any]]:
    """Gives the graph values for some of its inputs, as constants.

    Args:
        graph: A `GraphProto`.
        values: For each such input a name, or "" for its own, and the value: a
            variable or an array.
        reserved: The names of the other inputs, in the order that they get.

    Returns:
        The names of the named constants that are used; and the values of
        constants, which the graph has without them.
    """
    from onnx import TensorProto, helper, numpy_helper

    used = set(_read(graph))
    taken = {
        *used,
        *(value.name for value in (*graph.input, *graph.output)),
        *(name for node in graph.node for name in node.output),
    }
    renamed: dict[str, str] = {}
    named = []
    numbers = {}
    for name, (wanted, value) in values.items():
        if name not in used:
            continue
        new = wanted or name
        while wanted and new in taken:
            new += "_"
        taken.add(new)
        renamed[name] = new
        kind = np.dtype(value.dtype)
        if kind.kind == "O":
            constant = numpy_helper.from_array(value, new)
        else:
            numbers[new] = value
            constant = TensorProto(
                name=new,
                dims=value.shape,
                data_type=helper.np_dtype_to_tensor_dtype(kind),
            )
        graph.initializer.append(constant)
        if wanted:
            named.append(new)
    _rename(graph, renamed)
    inputs = {value.name: value for value in graph.input}
    order = [name for name in reserved if name in inputs]
    order += [name for name in inputs if name not in {*order, *values}]
    kept = [inputs[name] for name in order]
    del graph.input[:]
    graph.input.extend(kept)
    return named, numbers


def nodes(graph: Any) -> Iterator[Any]:
    """Yields every node of a graph, and of the graphs inside it."""
    for each in graphs(graph):
        yield from each.node


def graphs(graph: Any) -> Iterator[Any]:
    """Yields a graph, and the graphs inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


def _read(graph: Any) -> Iterator[str]:
    for each in graphs(graph):
        for node in each.node:
            yield from node.input
        yield from (value.name for value in each.output)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Renames what nodes read, in graphs inside the graph too.

    This is safe: tf2onnx names every tensor once in all graphs.
    """
    for each in graphs(graph):
        for node in each.node:
            for index, name in enumerate(node.input):
                if name in names:
                    node.input[index] = names[name]
        for value in each.output:
            value.name = names.get(value.name, value.name)


def with_float_tables(graph: Any, numbers: Mapping[str, Any]) -> None:
    """Looks up floats directly where the graph looks up their bit patterns.

    ONNX cannot reinterpret integers as floats. If the rows of a constant are
    used so, the constant itself can hold floats. Loops and branches read the
    constants of the graphs around them.

    Args:
        graph: A `GraphProto`.
        numbers: The values of constants that the graph has without them.
    """
    from onnx import numpy_helper

    # tf2onnx names every tensor once in all its graphs.
    homes = {}
    constants = {}
    for inner in graphs(graph):
        for each in inner.initializer:
            homes[each.name], constants[each.name] = inner, each
    makers = {name: node for node in nodes(graph) for name in node.output}
    floats: dict[str, str] = {}
    for node in nodes(graph):
        if node.op_type != "Bitcast":
            continue
        source = makers.get(node.input[0])
        while source is not None and source.op_type in (
            "Identity",
            "Reshape",
            "Squeeze",
            "Unsqueeze",
        ):
            source = makers.get(source.input[0])
        if (
            source is None
            or source.op_type != "Gather"
            or source.input[0] not in {*constants, *floats.values()}
        ):
            continue  # `_check` refuses the operator by its name
        table = source.input[0]
        if table not in floats.values():
            if table not in floats:
                values = (
                    array_of(numbers[table])
                    if table in numbers
                    else numpy_helper.to_array(constants[table])
                )
                if values.dtype != np.int32:
                    continue
                floats[table] = f"{table}/as_float32"
                homes[table].initializer.append(
                    numpy_helper.from_array(
                        values.view("float32"), floats[table]
                    )
                )
            source.input[0] = floats[table]
        node.op_type = "Identity"
        del node.attribute[:]
    used = set(_read(graph))
    for name in floats:
        if name not in used:
            homes[name].initializer.remove(constants[name])
