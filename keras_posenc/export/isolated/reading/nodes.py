"""What the fields of a TensorFlow node say."""

from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def names_a_file(node: Any) -> bool:
    """Whether a node writes to a file that it names itself."""
    return node.op == "PrintV2" and bool(
        node.attr["output_stream"].s.startswith(b"file:")
    )


def node_name(tensor: str) -> str:
    """The node, or the argument, whose output a tensor is."""
    return tensor.removeprefix("^").partition(":")[0]


def called_by(node: Any) -> set[str]:
    """Whatever may be the name of a function that a node calls."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
