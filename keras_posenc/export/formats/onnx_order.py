"""One order and one set of names for ONNX graphs of the same content.

tf2onnx names tensors by counters and orders nodes and the values that loops
carry by sets, so two conversions of one model differ in all three. Here the
order follows from the outputs, and names from the order: the same model gives
the same file.
"""

import collections
import hashlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from keras_posenc.export.formats.onnx_operators import array_of


def sort_graph(
    graph: Any, kept: Collection[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Sorts and names the nodes and constants of a graph, in place.

    Names stay for inputs, outputs and weights. Nodes and constants that no
    output needs are left out, and equal constants of a graph become one.

    Args:
        graph: A `GraphProto`, in which each tensor has a name of its own, also
            among the tensors of graphs inside of it.
        kept: The names of the weights, which are not merged either.
        values: The values of initializers that have none in the graph, by
            name.

    Returns:
        These values, by their names from now on.
    """
    known = [each.name for each in (*graph.input, *graph.output)]
    names = {name: name for name in (*known, *kept)}
    _merge_constants(graph, names.keys(), values)
    _sort_nodes(graph)
    _sort_loops(graph, {name: name for name in names}, values)
    _sort_nodes(graph)
    _name(graph, names, collections.Counter())
    return {names[key]: x for key, x in values.items() if key in names}


def _inner(node: Any) -> list[tuple[str, Any]]:
    """Returns the graphs inside a node, by the name of the attribute."""
    return sorted((x.name, x.g) for x in node.attribute if x.HasField("g"))


def _merge_constants(
    graph: Any, kept: Collection[str], values: Mapping[str, Any]
) -> None:
    """Lets nodes read one of equal constants, in each graph."""
    first: dict[bytes, str] = {}
    names: dict[str, str] = {}
    for each in graph.initializer:
        if each.name in kept:
            continue
        names[each.name] = first.setdefault(_content(each, values), each.name)
    _read_others(graph, names)
    for node in graph.node:
        for _, inner in _inner(node):
            _merge_constants(inner, kept, values)


def _content(tensor: Any, values: Mapping[str, Any]) -> bytes:
    """A digest of an initializer's numbers."""
    found = hashlib.sha256(f"{tensor.data_type} {[*tensor.dims]};".encode())
    if tensor.name in values:
        found.update(array_of(values[tensor.name]).tobytes())
    else:
        copied = type(tensor)()
        copied.CopyFrom(tensor)
        copied.ClearField("name")
        found.update(copied.SerializeToString(deterministic=True))
    return found.digest()


def _read_others(graph: Any, names: Mapping[str, str]) -> None:
    """Renames what nodes read and graphs return, those inside too."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for _, inner in _inner(node):
            _read_others(inner, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)


def _reads(node: Any) -> Iterator[str]:
    """Yields what a node reads, also in graphs inside of it."""
    yield from node.input
    for _, inner in _inner(node):
        for each in inner.node:
            yield from _reads(each)
        yield from (value.name for value in inner.output)


def _sort_nodes(graph: Any) -> None:
    """Sorts nodes and constants by the order in which outputs need them."""
    for node in graph.node:
        for _, inner in _inner(node):
            _sort_nodes(inner)
    makers = {name: node for node in graph.node for name in node.output}
    constants = {each.name: each for each in graph.initializer}
    nodes: list[Any] = []
    used: dict[str, Any] = {}
    seen: set[int] = set()
    for value in graph.output:
        stack = [iter([value.name])]
        made: list[Any] = []
        while stack:
            for name in stack[-1]:
                if name in constants:
                    used[name] = constants[name]
                node = makers.get(name)
                if node is not None and id(node) not in seen:
                    seen.add(id(node))
                    stack.append(_reads(node))
                    made.append(node)
                    break
            else:
                stack.pop()
                if stack:
                    nodes.append(made.pop())
    _replace(graph.node, nodes)
    _replace(graph.initializer, list(used.values()))
    for node in graph.node:
        _replace(node.attribute, sorted(node.attribute, key=lambda x: x.name))


def _sort_loops(
    graph: Any, known: dict[str, Any], values: Mapping[str, Any]
) -> None:
    """Sorts what loops carry by what it is computed from.

    Args:
        graph: A graph, whose nodes come after what they read.
        known: A digest of each tensor by name, for those that nodes read; those
            of the graph are added.
        values: As for `sort_graph`.
    """
    for each in graph.initializer:
        if each.name not in known:  # as weights are, by their names
            known[each.name] = _content(each, values)
    for node in graph.node:
        if node.op_type == "Identity":
            known[node.output[0]] = known.get(node.input[0])
            continue
        parts: list[Any] = [node.op_type, node.domain]
        if node.op_type == "Loop":
            _sort_loop(node, known, values)
        for each in sorted(node.attribute, key=lambda each: each.name):
            if each.HasField("g"):
                inside = {x.name: i for i, x in enumerate(each.g.input)}
                parts.append(_outputs(each.g, {**known, **inside}, values))
            elif each.HasField("t"):  # which may have a name
                parts.append((each.name, _content(each.t, {})))
            else:
                parts.append(each.SerializeToString(deterministic=True))
        parts.append([known.get(name) for name in node.input])
        own = hashlib.sha256(repr(parts).encode()).hexdigest()
        for index, name in enumerate(node.output):
            known[name] = own, index


def _sort_loop(
    node: Any, known: dict[str, Any], values: Mapping[str, Any]
) -> None:
    ((_, body),) = _inner(node)
    count = len(node.input) - 2  # without the number and the condition
    inputs = [each.name for each in body.input]
    found = [repr(known.get(name)) for name in node.input[2:]]
    kinds = 0
    # What two start with may be equal, and what becomes of them not.
    while kinds < len({*found}):
        kinds = len({*found})
        inside = dict(zip(inputs, ["number", "goes on", *found], strict=True))
        after = _outputs(body, {**known, **inside}, values)
        found = [
            hashlib.sha256(repr(pair).encode()).hexdigest()
            for pair in zip(found, after[1 : 1 + count], strict=True)
        ]
    order = sorted(range(count), key=found.__getitem__)
    for names, start in ((node.input, 2), (node.output, 0)):
        names[start : start + count] = [names[start + i] for i in order]
    for infos, start in ((body.input, 2), (body.output, 1)):
        end = start + count
        carried = [infos[start + i] for i in order]
        _replace(infos, [*infos[:start], *carried, *infos[end:]])
    _copy_twice_returned(body)


def _copy_twice_returned(graph: Any) -> None:
    """Copies what a graph returns several times, except the first time.

    ONNX has each output once, and tf2onnx copies either.
    """
    made = {each.name for each in graph.input}
    made.update(name for node in graph.node for name in node.output)
    copies = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Identity" and node.input[0] in made
    }
    seen = set()
    for index, value in enumerate(graph.output):
        name = value.name
        while name in copies:
            name = copies[name]
        value.name = name
        if name in seen:
            value.name = f"{name} {index}"  # no other has a blank in its name
            graph.node.add(
                op_type="Identity", input=[name], output=[value.name]
            )
        seen.add(name)


def _outputs(
    graph: Any, known: dict[str, Any], values: Mapping[str, Any]
) -> list[Any]:
    """The digests of a graph's outputs, given those of what it reads."""
    _sort_loops(graph, known, values)
    return [known.get(each.name) for each in graph.output]


def _replace(field: Any, messages: list[Any]) -> None:
    """Sets a repeated field to messages, which may be of the field itself."""
    copies = [type(each)() for each in messages]
    for copied, each in zip(copies, messages, strict=True):
        copied.CopyFrom(each)
    del field[:]
    field.extend(copies)


def _name(
    graph: Any, names: dict[str, str], counts: collections.Counter[str]
) -> None:
    """Names nodes, constants and tensors by their kind and number."""

    def numbered(kind: str) -> str:
        counts[kind] += 1
        # No input has a colon in its name.
        return f"{kind}:{counts[kind]}"

    for each in graph.initializer:
        if each.name not in names:
            names[each.name] = numbered("constant")
        each.name = names[each.name]
    for node in graph.node:
        node.name = numbered(node.op_type)
        if not node.domain:  # tf2onnx writes an empty one, or none
            node.ClearField("domain")
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute, inner in _inner(node):
            inner.name = f"{node.name}:{attribute}"
            for value in inner.input:
                names.setdefault(value.name, numbered("input"))
                value.name = names[value.name]
            _name(inner, names, counts)
        for index, name in enumerate(node.output):
            if name:
                names.setdefault(name, f"{node.name}:{index}")
                node.output[index] = names[name]
    for value in graph.output:
        value.name = names.get(value.name, value.name)
    del graph.value_info[:]
    graph.ClearField("doc_string")  # the converter's name for its function
    for value in (*graph.input, *graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                key = f" {size.dim_param}"  # no tensor has a blank in its name
                names.setdefault(key, numbered("size").replace(":", "_"))
                size.dim_param = names[key]
