"""ONNX graphs as tf2onnx leaves them, made ones that importers read."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_posenc.artifacts.onnx.writing import array_of


def with_values(
    graph: Any,
    values: Mapping[str, tuple[str, Any]],
    reserved: Iterable[str],
) -> tuple[list[str], dict[str, Any]]:
    """Gives the graph values for some of its inputs, as constants of it.

    Args:
        graph: A `GraphProto`.
        values: For each such input a name, or "" for its own, and the value:
            a variable or an array.
        reserved: The names of the other inputs, in the order that they get.

    Returns:
        The names of those constants that were given one, and are used; and
        the values of constants, which the graph has without them.
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
    """Every node of a graph, and of those inside of it, however deep."""
    for each in _graphs(graph):
        yield from each.node


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _read(graph: Any) -> Iterator[str]:
    """The names that nodes read, and those of outputs."""
    for each in _graphs(graph):
        for node in each.node:
            yield from node.input
        yield from (value.name for value in each.output)


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Lets the nodes read other names, those of subgraphs too.

    tf2onnx names every tensor once in all its graphs.
    """
    for each in _graphs(graph):
        for node in each.node:
            for index, name in enumerate(node.input):
                if name in names:
                    node.input[index] = names[name]
        for value in each.output:
            value.name = names.get(value.name, value.name)


def with_float_tables(graph: Any, numbers: Mapping[str, Any]) -> None:
    """Looks numbers up as floats where the graph does as their bit patterns.

    ONNX cannot read integers as floats. Where it would read rows of a constant
    so, the constant can be floats. Loops and branches read those of the graphs
    around them.

    Args:
        graph: A `GraphProto`.
        numbers: The values of those constants that it has without them.
    """
    from onnx import numpy_helper

    # tf2onnx names every tensor once in all its graphs.
    homes = {}
    constants = {}
    for inner in _graphs(graph):
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
            continue  # refused by name
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
