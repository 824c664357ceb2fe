"""Properties of the nodes of a TensorFlow graph."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
INIT = "__saved_model_init_op"


def names_a_file(node: Any) -> bool:
    """Returns whether a node writes to a file that it names itself."""
    return node.op == "PrintV2" and bool(
        node.attr["output_stream"].s.startswith(b"file:")
    )


def node_name(tensor: str) -> str:
    """Returns the node, or the argument, that a tensor is an output of."""
    return tensor.removeprefix("^").partition(":")[0]


def reachable(
    nodes: Mapping[str, Any], tensors: Iterable[str]
) -> Iterator[Any]:
    """Yields the nodes that tensors need, each before its own inputs.

    Names that are not among the nodes, such as arguments, are left out.
    """
    remaining, seen = [*map(node_name, tensors)][::-1], set[str]()
    while remaining:
        name = remaining.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            yield nodes[name]
            remaining.extend(map(node_name, reversed(nodes[name].input)))


def called_by(node: Any) -> set[str]:
    """Returns all names that may be functions called by a node."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names


@functools.cache
def draws(operator: str) -> bool:
    """Returns whether an operator has a state, as random numbers have."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return (
        definition is not None
        and definition.is_stateful
        and "seed" in {each.name for each in definition.attr}
        and all(
            each.type != tf.resource.as_datatype_enum
            for each in (*definition.input_arg, *definition.output_arg)
        )
    )


@functools.cache
def makes_resource(operator: str) -> bool:
    """Returns whether an operator's output is a handle of a state."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return definition is not None and any(
        each.type == tf.resource.as_datatype_enum
        for each in definition.output_arg
    )


def functions_called(node: Any) -> set[str]:
    """Returns `called_by` if the node's operator can call functions."""
    return called_by(node) if _may_call(node.op) else set()


@functools.cache
def _may_call(operator: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return definition is None or any(
        each.type in ("func", "list(func)") for each in definition.attr
    )
