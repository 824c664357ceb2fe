"""Properties of the nodes of a TensorFlow graph."""

from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
INIT = "__saved_model_init_op"


def names_a_file(node: Any) -> bool:
    """Returns whether a node may write to a file that it names itself."""
    if node.op != "PrintV2":
        return False
    stream = node.attr["output_stream"]  # or what a function is called with
    return bool(stream.placeholder) or stream.s.startswith(b"file:")


def node_name(tensor: str) -> str:
    """Returns the node, or the argument, that a tensor is an output of."""
    return tensor.removeprefix("^").partition(":")[0]


def called_by(node: Any) -> set[str]:
    """Returns all names that may be functions called by a node."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
