"""A SavedModel on its way to LiteRT, in operators that run right there."""

from pathlib import Path
from typing import Any


def rewrite_operators(saved_model: Path) -> None:
    """Replaces what LiteRT's converter or kernels would compute otherwise.

    - Softplus: the converter writes log(1 + exp(x)), which overflows above 88.
    - Rsqrt: XNNPACK's (ai-edge-litert 2.3.0) gives NaN at 0, where others give
      infinity, which `keras.layers.UnitNormalization` goes on with.
    - Pack of sizes: see `_join_by_concat`.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model / "saved_model.pb"
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(file.read_bytes())
    for graph in message.meta_graphs:
        for function in graph.graph_def.library.function:
            renamed: dict[str, str] = {}
            nodes = {node.name: node for node in function.node_def}
            for node in list(nodes.values()):
                if node.op == "Pack":
                    _join_by_concat(function, node)
                elif node.op == "Softplus":
                    _softplus_without_overflow(function, node)
                    renamed[f"{node.name}:activations:0"] = f"{node.name}:z:0"
                elif node.op == "Rsqrt" and not _is_above_zero(node, nodes):
                    _rsqrt_by_sqrt(function, node)
            for node in function.node_def:
                node.input[:] = [renamed.get(name, name) for name in node.input]
            for key, name in list(function.ret.items()):
                function.ret[key] = renamed.get(name, name)
    file.write_bytes(message.SerializeToString())


def _softplus_without_overflow(function: Any, node: Any) -> None:
    """Softplus as max(x, 0) + log(1 + exp(-|x|)), whose exp is 1 at most."""
    (x,) = node.input
    size = _add(function, node, "Abs", "size", x)
    negative = _add(function, node, "Neg", "negative", f"{size}:y:0")
    small = _add(function, node, "Exp", "small", f"{negative}:y:0")
    one = _constant(function, node, 1)
    more = _add(function, node, "AddV2", "more", f"{small}:y:0", one)
    rest = _add(function, node, "Log", "rest", f"{more}:z:0")
    positive = _add(function, node, "Relu", "positive", x)
    node.op = "AddV2"
    node.input[:] = [f"{positive}:activations:0", f"{rest}:y:0"]


def _rsqrt_by_sqrt(function: Any, node: Any) -> None:
    """Rsqrt as 1 / sqrt(x), which is infinite at 0."""
    root = _add(function, node, "Sqrt", "root", *node.input)
    node.op = "Reciprocal"  # whose output is called as Rsqrt's is
    node.input[:] = [f"{root}:y:0"]


def _is_above_zero(node: Any, nodes: dict[str, Any]) -> bool:
    """Whether a constant is added ahead of it, as normalizations do."""
    added = nodes.get(node.input[0].partition(":")[0])
    return (
        added is not None
        and added.op == "AddV2"
        and any(
            source in nodes and nodes[source].op == "Const"
            for source in (name.partition(":")[0] for name in added.input)
        )
    )


def _join_by_concat(function: Any, node: Any) -> None:
    """Has sizes joined by ConcatV2, not by Pack.

    A LiteRT runtime computes what follows from its inputs' shapes as soon as it
    has them, by every operator that a shape is made of except PACK. Where one
    is left to the run, all that is behind it is prepared while the file runs.
    XNNPACK's delegate (ai-edge-litert 2.3.0) then moves memory that its parts
    share, but tells nothing to those that have run: asked once more, they read
    and write where it was before.
    """
    from tensorflow.core.framework import types_pb2

    integer = types_pb2.DT_INT32
    if node.attr["T"].type != integer:
        return
    axis = _constant(function, node, node.attr["axis"].i)
    count = node.attr["N"].i
    del node.attr["axis"]
    # All three operators call their output the same.
    if count == 1:  # too few for ConcatV2
        node.op = "ExpandDims"
        node.input.insert(1, axis)
        node.attr["Tdim"].type = integer
        del node.attr["N"]
        return
    for index in range(count):
        part = _add(
            function, node, "ExpandDims", str(index), node.input[index], axis
        )
        function.node_def[-1].attr["Tdim"].type = integer
        node.input[index] = f"{part}:output:0"
    node.op = "ConcatV2"
    node.input.insert(count, axis)
    node.attr["Tidx"].type = integer


def _add(function: Any, node: Any, op: str, name: str, *inputs: str) -> str:
    """Adds an operator of the node's dtype; returns its name."""
    added = function.node_def.add(
        name=f"{node.name}/rewritten/{name}", op=op, input=inputs
    )
    added.attr["T"].type = node.attr["T"].type
    return str(added.name)


def _constant(function: Any, node: Any, value: int) -> str:
    """Adds a scalar of the node's dtype; returns the name of its tensor."""
    import tensorflow as tf

    dtype = node.attr["T"].type
    added = function.node_def.add(
        name=f"{node.name}/rewritten/constant", op="Const"
    )
    added.attr["dtype"].type = dtype
    added.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, dtype))
    return f"{added.name}:output:0"
