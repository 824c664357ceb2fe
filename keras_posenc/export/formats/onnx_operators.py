"""Operators and constants of ONNX graphs that tf2onnx writes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np


def array_of(value: Any) -> np.ndarray:
    """Returns the values of a Keras variable or a tensor."""
    tensor = keras.ops.convert_to_tensor(value)
    return np.asarray(tensor, object if tensor.dtype == "string" else None)


EINSUM = "EinsumAsItIs"  # a name that tf2onnx does not know
_WHERE = ("float32", "float64", "int32", "int64")  # with a kernel for Where


def _einsum(context: Any, node: Any, *_: Any) -> None:
    """Keeps Einsum, which tf2onnx would split as OpenVINO cannot read."""
    equation = node.get_attr_value("equation").decode().replace(" ", "")
    for name in list(node.attr):
        del node.attr[name]
    node.type = EINSUM
    node.set_attr("equation", equation)


def _select(context: Any, node: Any, *_: Any) -> None:
    """Writes a selection as Where; a product with 0 and 1 would spread NaN."""
    from tf2onnx.onnx_opset.controlflow import Select

    if _dtype(context, node.output[0]) in _WHERE:
        node.type = "Where"
    else:  # without NaN
        Select.version_7(context, node)


def _compare(context: Any, node: Any, *_: Any) -> None:
    """Compares integers as integers: a float32 would lose those past 2**24."""
    from tf2onnx.onnx_opset.logical import GreaterLess

    if number := _of_sign_bit(node):
        _sign_bit(context, node, number)
        return
    dtype = _dtype(context, node.input[0])
    if dtype.kind not in "iu" or dtype == "uint64":
        GreaterLess.version_7(context, node)
    else:  # a loop's counter becomes int64, whatever it was
        for name in [*node.input]:
            _to_int64(context, node, name)
    node.type = node.type.replace("rE", "rOrE").replace("sE", "sOrE")


def _top_k(context: Any, node: Any, *_: Any) -> None:
    """Sorts integers as integers."""
    if _dtype(context, node.output[0]).kind in "iu":
        dtype = context.get_dtype(node.output[0])
        _to_int64(context, node, node.input[0])
        _cast_output(context, node, 0, dtype)
    indices = context.get_dtype(node.output[1])
    count = _to_int64(context, node, node.input[1])
    axes = context.make_const(f"{node.name}_axes", np.array([0], "int64"))
    one = context.make_node("Unsqueeze", [count, axes.output[0]])
    context.replace_input(node, count, one.output[0], 1)
    node.type = "TopK"
    _cast_output(context, node, 1, indices)


def _truncate_mod(context: Any, node: Any, *_: Any) -> None:
    """Writes the remainder of a quotient that is rounded towards 0."""
    node.type = "Mod"
    node.set_attr("fmod", 1)


def _resize(context: Any, node: Any, *_: Any) -> None:
    """Resizes to sizes: factors in float32 may give a pixel less."""
    from tf2onnx.onnx_opset.nn import Resize

    image = node.input[0]
    shape = context.get_shape(image)
    if shape is not None:
        context.set_shape(image, [shape[0], -1, -1, shape[3]])
    Resize.version_11(context, node)
    if shape is not None:
        context.set_shape(image, shape)


def _of_sign_bit(node: Any) -> str | None:
    """Returns the float whose sign bit is compared, as by `argmax`, or None."""
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


def _to_int64(context: Any, node: Any, name: str) -> str:
    from onnx import TensorProto

    cast = context.insert_new_node_on_input(
        node, "Cast", name, to=TensorProto.INT64
    )
    return str(cast.output[0])


def _cast_output(context: Any, node: Any, index: int, dtype: int) -> None:
    name = node.output[index]
    cast = context.insert_new_node_on_output("Cast", name, to=dtype)
    context.set_dtype(cast.output[0], dtype)
    context.copy_shape(name, cast.output[0])


def _dtype(context: Any, tensor: str) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(context.get_dtype(tensor))


# Each with further arguments of its calls, as tf2onnx takes handlers.
HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    name: (handler, [])
    for name, handler in {
        "Einsum": _einsum,
        "Greater": _compare,
        "GreaterEqual": _compare,
        "Less": _compare,
        "LessEqual": _compare,
        # Left, and refused: tf2onnx writes another interpolation.
        "ResizeArea": lambda *_: None,
        "ResizeBilinear": _resize,
        "ResizeNearestNeighbor": _resize,
        "SelectV2": _select,
        "TopKV2": _top_k,
        "TruncateMod": _truncate_mod,
    }.items()
}


def with_values(
    graph: Any, values: Mapping[str, Any], inputs: Sequence[str]
) -> None:
    """Makes some of a graph's inputs constants; others get an order."""
    from onnx import numpy_helper

    used = {x for node in nodes(graph) for x in node.input}
    used |= {each.name for inner in graphs(graph) for each in inner.output}
    names = {each.name for each in graph.input}
    for name, value in values.items():
        if name in used & names:
            constant = numpy_helper.from_array(array_of(value), name)
            graph.initializer.append(constant)
    given = [each for each in graph.input if each.name not in values]
    given.sort(key=lambda each: [*inputs, each.name].index(each.name))
    del graph.input[:]
    graph.input.extend(given)


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
