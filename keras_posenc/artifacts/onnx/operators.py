"""TensorFlow's operators that tf2onnx cannot translate, or not for others."""

from typing import Any

import numpy as np

EINSUM = "EinsumAsItIs"  # a name that tf2onnx does not know
_WHERE = ("float32", "float64", "int32", "int64")  # ONNX Runtime's


def _einsum(context: Any, node: Any, *_: Any) -> None:
    """Einsum as a Transpose, as a product with a matrix, or as it is.

    tf2onnx would take it to pieces, whose shapes other importers cannot infer,
    with an Unsqueeze by no axes, which OpenVINO does not read.
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
    """A MatMul with what is a matrix when axes are taken together.

    As such ONNX Runtime lays weights out once, and not at every call.

    Args:
        context: The graph.
        node: The node to replace.
        rank: How many axes of the first operand stay.
        shape: The shape of the second operand.
        count: How many of its axes, the first ones, are summed over.
    """

    def reshaped(tensor: str, sizes: list[int], **options: Any) -> str:
        wanted = context.make_const(
            f"{node.name}_{tensor}_shape", np.array(sizes, "int64")
        )
        made = context.make_node(
            "Reshape", [tensor, wanted.output[0]], **options
        )
        return str(made.output[0])

    kept = [0] * rank  # as they are
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


def _erfc(context: Any, node: Any, *_: Any) -> None:
    """Erfc, which ONNX lacks, as 1 - Erf."""
    one = context.make_const(
        f"{node.name}_one", np.ones((), _dtype(context, node))
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
    """A selection by Where: tf2onnx multiplies by 0 and 1, and NaN spreads."""
    from tf2onnx.onnx_opset.controlflow import Select

    if _dtype(context, node) in _WHERE:
        node.type = "Where"
    else:  # without NaN
        Select.version_7(context, node)


def _floor_divide(context: Any, node: Any, *_: Any) -> None:
    """Quotients rounded down: tf2onnx rounds those of integers towards 0."""
    from tf2onnx.onnx_opset.math import FloorDiv

    if _dtype(context, node).kind not in "iu":
        FloorDiv.version_6(context, node)
        return
    x, divisor = node.input
    made = {"shapes": node.output_shapes, "dtypes": node.output_dtypes}
    outputs = {"name": node.name, "outputs": list(node.output)}
    context.remove_node(node.name)
    rest = context.make_node("Mod", [x, divisor], **made)
    whole = context.make_node("Sub", [x, rest.output[0]], **made)
    context.make_node("Div", [whole.output[0], divisor], **outputs, **made)


def _floor_mod(context: Any, node: Any, *_: Any) -> None:
    """What quotients that are rounded down leave."""
    from tf2onnx.onnx_opset.math import FloorMod

    if _dtype(context, node).kind in "iu":
        node.type = "Mod"
    else:
        FloorMod.version_7(context, node)


def _dtype(context: Any, node: Any) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(context.get_dtype(node.output[0]))


# As tf2onnx takes them: each with what else it is to be called with.
HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "Einsum": (_einsum, []),
    "Erfc": (_erfc, []),
    "FloorDiv": (_floor_divide, []),
    "FloorMod": (_floor_mod, []),
    "SelectV2": (_select, []),
}
