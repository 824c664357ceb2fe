"""Reads the computation of an ONNX file."""

import collections
from collections.abc import Collection
from typing import Any

from keras_posenc_worker.fingerprint import Constant, Node, Tensor

# Fields that are names or notes, or are read below. All others are compared,
# also those that the format may get later.
_NOTES = ("name", "doc_string", "metadata_props")
_OF_MODEL = (
    *("graph", "opset_import", "functions", "producer_name"),
    *("producer_version", "domain", "model_version", *_NOTES),
)
_OF_GRAPH = ("node", "initializer", "input", "output", "value_info", *_NOTES)
_OF_NODE = (
    *("input", "output", "op_type", "domain", "overload", "attribute"),
    *_NOTES,
)


def read_onnx(
    path: str, is_static: bool = False
) -> tuple[Node, dict[str, str]]:
    """Returns what an ONNX file computes, and its writer, as it says.

    Args:
        path: The file.
        is_static: Whether the ranges of activations were calibrated on inputs
            that are not known.

    Raises:
        ValueError: The file is ambiguous, or reads a tensor that nothing makes.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    facts = {
        "versions of operators": sorted(
            (_domain(each), each.version) for each in model.opset_import
        ),
        "list of own functions": [each.name for each in model.functions],
        **_rest(model, _OF_MODEL),
    }
    graph = _graph(model.graph, collections.ChainMap(), is_static)
    writer = {each.key: each.value for each in model.metadata_props}
    writer[model.producer_name or "an unknown program"] = model.producer_version
    return Node("file", facts, parts={"graph": graph}), writer


def _graph(
    graph: Any,
    known: collections.ChainMap[str, Tensor | None],
    is_static: bool,
) -> Node:
    """Reads a graph, whose nodes come after what they read.

    Args:
        graph: A `GraphProto`.
        known: Receives its tensors, after those of the graphs around it.
        is_static: As for `read_onnx`.
    """

    def define(name: str, tensor: Tensor | None) -> None:
        if name in known:  # runtimes might take either
            raise ValueError("a tensor is in the file twice")
        known[name] = tensor

    def read(name: str) -> Tensor | None:
        if name and name not in known:
            raise ValueError(f"nothing makes the tensor {name!r}")
        if name in calibrated:  # equal ones may be stored once
            facts = {"type": calibrated[name]}
            return Tensor(Node("calibrated number", facts))
        return known[name] if name else None  # an optional input

    found = Node("graph", _rest(graph, _OF_GRAPH))
    calibrated = _calibrated(graph) if is_static else {}
    # Inner graphs' inputs and outputs are matched by place, not by name.
    is_top = len(known.maps) == 1
    sizes: dict[str, str] | None = {} if is_top else None
    inputs = {}
    for place, each in enumerate(graph.input):
        inputs[each.name] = Node("input", {"type": _type(each, sizes)})
        define(each.name, Tensor(inputs[each.name]))
        name = f" '{each.name}'" * is_top
        found.parts[f"input {place}{name}"] = known[each.name]
    for each in graph.initializer:
        constant = Constant(_array(each), each.name)
        if each.name in inputs:  # its default value
            inputs.pop(each.name).parts["default"] = constant
        else:
            define(each.name, Tensor(constant))
    # ONNX Runtime folds `Shape` by these types, so they are compared.
    types = {each.name: _type(each, None) for each in graph.value_info}
    count = 0
    for node in graph.node:
        operator = _operator(node, known, is_static)
        parts = [read(name) for name in node.input]
        operator.parts |= {f"input {i}": each for i, each in enumerate(parts)}
        is_plain = operator.kind == "Identity" or (
            operator.kind == "Constant" and not operator.settings
        )
        count += not is_plain
        for place, name in enumerate(node.output):
            tensor: Any = Tensor(operator, place)
            if operator.kind == "Identity":
                (tensor,) = parts
            elif is_plain:
                tensor = operator.parts["value"]
            else:
                noted = types.get(name)
                operator.facts[f"type noted of output {place}"] = noted
            if name:
                define(name, tensor)
    # An operator without use is run too, and may never end: count them.
    found.facts["number of operators"] = count
    for place, each in enumerate(graph.output):
        name = f" '{each.name}'" * is_top
        found.parts[f"output {place}{name}"] = read(each.name)
        found.facts[f"type of output {place}"] = _type(each, sizes)
    return found


def _calibrated(graph: Any) -> dict[str, str]:
    """Returns the dtypes of what ranges of activations are, by name.

    That is one scale and one zero point for each.
    """
    names = {
        name
        for node in graph.node
        if node.op_type == "QuantizeLinear"
        for name in node.input[1:]
    }
    return {
        each.name: str(each.data_type)
        for each in graph.initializer
        if each.name in names and not each.dims
    }


def _operator(
    node: Any,
    known: collections.ChainMap[str, Tensor | None],
    is_static: bool,
) -> Node:
    """Reads a node without its inputs."""
    from onnx import AttributeProto, helper

    kind = _domain(node), node.op_type, node.overload
    found = Node(".".join(filter(None, kind)), _rest(node, _OF_NODE))
    found.facts["list of outputs"] = [bool(name) for name in node.output]
    for each in node.attribute:
        if each.name in {**found.settings, **found.parts}:
            raise ValueError("an attribute is in the file twice")
        value = helper.get_attribute_value(each)
        if each.type == AttributeProto.GRAPH:
            found.parts[each.name] = _graph(value, known.new_child(), is_static)
        elif each.type == AttributeProto.TENSOR:
            found.parts[each.name] = Constant(_array(value))
        else:
            found.settings[each.name] = value
    found.parts = dict(sorted(found.parts.items()))
    return found


def _type(value: Any, sizes: dict[str, str] | None) -> Any:
    """Returns the type of an input or output, without the names of its sizes.

    Args:
        value: A `ValueInfoProto`.
        sizes: New names of sizes, by their own. None if names do not count.
    """
    if not value.type.HasField("tensor_type"):
        return str(value.type)
    found = value.type.tensor_type
    shape = []
    for size in found.shape.dim:
        if size.HasField("dim_value"):
            shape.append(size.dim_value)
        elif sizes is None or not size.dim_param:
            shape.append("?")
        else:
            shape.append(sizes.setdefault(size.dim_param, f"n{len(sizes)}"))
    return found.elem_type, shape if found.HasField("shape") else None


def _rest(message: Any, known: Collection[str]) -> dict[str, str]:
    """Returns the fields of a message except those that are known."""
    return {
        field.name: str(value)
        for field, value in message.ListFields()
        if field.name not in known
    }


def _domain(message: Any) -> str:
    """Returns the standard name of a domain."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def _array(tensor: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)
