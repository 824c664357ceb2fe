"""The values that a SavedModel's signatures read, in servers and in Python."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_posenc.export.isolated.asking.agreement import (
    Disagreement,
    keywords_of,
)
from keras_posenc.export.isolated.asking.contents import (
    digest,
    digest_in_parts,
    read_handle,
)
from keras_posenc.export.isolated.asking.nodes import captured_by
from keras_posenc.export.isolated.reading.nodes import node_name

_PART = 2**22  # numbers
_WHOLE = ("string", "int4", "uint4")  # dtypes whose rows TensorFlow cuts not


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some rows of a variable that is too large to be copied whole.

    Attributes:
        value: The variable's value.
        start: A placeholder of the first row's number.
        part: `count` rows from there on, or fewer at the end.
        count: How many.
    """

    value: Any
    start: Any
    part: Any
    count: int


def reads(graph: Any, meta: Any, calls: Mapping[str, Any]) -> dict[str, Any]:
    """What gives the values that signatures read, by the names of tensors."""
    found = {}
    for name, call in calls.items():
        for each in call.input[len(keywords_of(meta, name)) :]:
            tensor = graph.get_tensor_by_name(node_name(each) + ":0")
            found[tensor.op.name] = in_rows(read_handle(tensor, tensor.op))
    return {name: value for name, value in found.items() if value is not None}


def in_rows(value: Any) -> Any:
    """A large tensor of numbers as `Rows`, and all else as it is."""
    import tensorflow as tf

    if not tf.is_tensor(value) or value.dtype.is_quantized:
        return value
    if value.dtype.name in _WHOLE or value.shape.num_elements() is None:
        return value
    if value.shape.num_elements() <= _PART:
        return value
    start = tf.compat.v1.placeholder("int32", [])
    count = max(1, _PART // math.prod(value.shape[1:]))
    return Rows(value, start, value[start : start + count], count)


def fetched(
    session: Any, reads: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Digests of what a session has restored, with its names.

    A part is fetched at a time, for a session gives copies.

    Raises:
        Disagreement: A large one has not the shape that its graph says.
    """
    part: dict[str, Any] = {}
    count = 0

    def digests_of_part() -> Iterator[tuple[str, str]]:
        for name, value in session.run(part).items():
            yield name, digest(value)

    for name, read in reads.items():
        if isinstance(read, Rows):
            parts = _parts(session, name, read)
            yield name, digest_in_parts(read.value, parts)
            continue
        part[name] = read
        if not isinstance(read, tuple):  # the keys and values of a table
            count += read.shape.num_elements() or 0
        if count > _PART:
            yield from digests_of_part()
            part, count = {}, 0
    yield from digests_of_part()


def _parts(session: Any, name: str, read: Rows) -> Iterator[Any]:
    """Its rows, and that there is none behind them: a file may hold more."""
    rows, *others = read.value.shape
    for start in [*range(0, rows, read.count), rows]:
        part = session.run(read.part, {read.start: start})
        if part.shape != (min(read.count, rows - start), *others):
            raise Disagreement(
                f"servers restore '{name}' with another shape than "
                f"{tuple(read.value.shape)}, which its graph says"
            )
        yield part


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
    served: Iterable[tuple[str, str]], by_python: Mapping[str, str]
) -> dict[str, str]:
    """The digests of what signatures read, by the names of tensors.

    Args:
        served: Digests of what servers have restored, with its names.
        by_python: What Python has, as digests.

    Raises:
        Disagreement: A server and Python have restored different values.
    """
    found = {}
    for name, value in served:
        found[name] = value
        if value != by_python[name]:
            raise Disagreement(
                f"servers and Python restore '{name}' with different values"
            )
    return found
