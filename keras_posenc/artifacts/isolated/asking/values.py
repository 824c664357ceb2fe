"""The values that a SavedModel's signatures read, in servers and in Python."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_posenc.artifacts.isolated.asking.agreement import (
    Disagreement,
    keywords_of,
)
from keras_posenc.artifacts.isolated.asking.contents import digest, read_handle
from keras_posenc.artifacts.isolated.asking.nodes import captured_by
from keras_posenc.artifacts.isolated.reading.nodes import node_name

_PART = 2**22  # numbers


def reads(graph: Any, meta: Any, calls: Mapping[str, Any]) -> dict[str, Any]:
    """What gives the values that signatures read, by the names of tensors."""
    found = {}
    for name, call in calls.items():
        for each in call.input[len(keywords_of(meta, name)) :]:
            tensor = graph.get_tensor_by_name(node_name(each) + ":0")
            found[tensor.op.name] = read_handle(tensor, tensor.op)
    return {name: value for name, value in found.items() if value is not None}


def fetched(
    session: Any, reads: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """What a session has restored, a part at a time, for it gives copies."""
    part: dict[str, Any] = {}
    count = 0
    for name, tensor in reads.items():
        part[name] = tensor
        if not isinstance(tensor, tuple):  # the keys and values of a table
            count += tensor.shape.num_elements() or 0
        if count > _PART:
            yield from session.run(part).items()
            part, count = {}, 0
    yield from session.run(part).items()


def digests(
    graph: Any,
    calls: Mapping[str, Any],
    functions: Mapping[str, Any],
    names: Iterable[str],
) -> dict[str, str]:
    """Digests of what Python has restored, by the names that servers have.

    Args:
        graph: That of the servers.
        calls: The node of each signature.
        functions: Its function.
        names: Of what can be read.
    """
    pairs = {
        tensor: captured
        for name, call in calls.items()
        for tensor, captured in zip(
            captured_by(call, functions[name]),
            functions[name].captured_inputs,
            strict=True,
        )
    }
    return {
        name: digest(
            read_handle(pairs[name], graph.get_operation_by_name(name))
        )
        for name in names
    }


def check_values(
    served: Iterable[tuple[str, Any]], by_python: Mapping[str, str]
) -> dict[str, str]:
    """The digests of what signatures read, by the names of tensors.

    Args:
        served: What servers have restored, with its names.
        by_python: What Python has, as digests.

    Raises:
        Disagreement: A server and Python have restored different values.
    """
    found = {}
    for name, value in served:
        found[name] = digest(value)
        if found[name] != by_python[name]:
            raise Disagreement(
                f"servers and Python restore '{name}' with different values"
            )
    return found
