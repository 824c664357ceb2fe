"""Whether a SavedModel is the same to servers and to Python."""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_posenc_worker.contents import VARIABLE
from keras_posenc_worker.nodes import (
    CALLS,
    INIT,
    called_by,
    draws,
    node_name,
)

_PREDICT = "tensorflow/serving/predict"


class Disagreement(Exception):
    """What a server and Python would read otherwise, in words."""


def check_agreement(meta: Any) -> dict[str, Any]:
    """The node of each signature, which Python runs as a function.

    That function is the same, of the same arguments in the same order, and its
    results are the same outputs. What is left to compare are the values that
    the two have restored: see `check_values`.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    objects = meta.object_graph_def.nodes
    by_python = python_signatures(objects)
    served = {
        name: signature
        for name, signature in meta.signature_def.items()
        if name != INIT
    }
    if served.keys() != by_python.keys():
        raise Disagreement(
            f"servers see the signatures {_list(served)}, and Python "
            f"{_list(by_python)}"
        )
    calls: dict[str, Any] = {}
    same: dict[str, int] = {}
    inits = {
        name
        for key in ("saved_model_main_op", "legacy_init_op")
        if key in meta.collection_def
        for name in meta.collection_def[key].node_list.value
    }
    if INIT in meta.signature_def:
        inits.discard(meta.signature_def[INIT].outputs[INIT].name)
    if inits:
        raise Disagreement(
            f"servers initialize it by '{INIT}', and others by {_list(inits)}"
        )
    for name, signature in served.items():

        def check(holds: Any, what: str, name: str = name) -> None:
            if not holds:
                raise Disagreement(f"signature '{name}': {what}")

        function = by_python[name]
        concrete = meta.object_graph_def.concrete_functions
        called = function.concrete_function_name
        check(called in concrete, "Python has no function for it")
        check(
            signature.method_name == _PREDICT,
            f"its method is '{signature.method_name}', and servers answer "
            f"'{_PREDICT}'",
        )
        check(
            not signature.defaults,
            "it has default values for inputs, which only some servers apply",
        )
        outputs = [
            signature.outputs[key].name for key in sorted(signature.outputs)
        ]
        node = nodes.get(outputs[0].partition(":")[0]) if outputs else None
        if node is None:
            raise Disagreement(f"signature '{name}' has no outputs")
        check(
            node.op in CALLS and node.attr["f"].func.name == called,
            f"Python runs the function '{called}', and servers '{node.name}'",
        )
        check(
            outputs == [f"{node.name}:{i}" for i in range(len(outputs))]
            and len(outputs) == len(node.attr["Tout"].list.type),
            "its outputs are not those of its function, in their order",
        )
        keywords = list(function.argument_keywords)
        check(
            sorted(keywords) == sorted(signature.inputs),
            f"Python takes {_list(keywords)}, and servers "
            f"{_list(signature.inputs)}",
        )
        given = [tensor.removesuffix(":0") for tensor in node.input]
        check(
            [f"{tensor}:0" for tensor in given[: len(keywords)]]
            == [signature.inputs[key].name for key in keywords],
            "its inputs are not those of its function, in their order",
        )
        bound = concrete[called].bound_inputs
        rest = given[len(keywords) :]
        check(
            len(rest) == len(bound)
            and all(
                tensor in nodes and not nodes[tensor].input for tensor in given
            )
            and all(
                nodes[tensor].op == "Placeholder"
                for tensor in given[: len(keywords)]
            ),
            "servers give its function other arguments than Python does",
        )
        for tensor, index in zip(rest, bound, strict=True):
            kind = objects[index].WhichOneof("kind")
            op = nodes[tensor].op
            is_same = same.setdefault(tensor, index) == index and (
                (kind == "variable" and op == VARIABLE)
                or (
                    kind == "resource"
                    and _is_made_alike(nodes[tensor], index, meta)
                )
                or (
                    kind == "constant"
                    and op == "Const"
                    and objects[index].constant.operation == tensor
                )
            )
            check(
                is_same,
                f"its function is given '{tensor}' by servers, and something "
                "else by Python",
            )
        calls[name] = node
    return calls


def check_loading(meta: Any, library: Mapping[str, Any]) -> None:
    """Raises `Disagreement` where it may load as another model next time."""
    nodes = {node.name: node for node in meta.graph_def.node}
    names = [meta.saver_def.restore_op_name]
    if INIT in meta.signature_def:
        names.append(meta.signature_def[INIT].outputs[INIT].name)
    remaining = [nodes[name] for name in map(node_name, names) if name in nodes]
    seen, called = {node.name for node in remaining}, set[str]()
    while remaining:
        node = remaining.pop()
        if draws(node.op):
            raise Disagreement(
                f"servers draw random numbers as they load it ({node.op}), so "
                "that it may be another model each time"
            )
        for name in called_by(node) & library.keys() - called:
            called.add(name)
            remaining.extend(library[name].node_def)
        if node.name in nodes and nodes[node.name] is node:  # of no function
            for name in {*map(node_name, node.input)} - seen:
                seen.add(name)
                remaining.append(nodes[name])


def python_signatures(objects: Any) -> dict[str, Any]:
    """The functions that Python finds by the names of signatures."""

    def child(node: Any, name: str) -> Any:
        for each in node.children:
            if each.local_name == name:
                return objects[each.node_id]
        return None

    signatures = child(objects[0], "signatures") if objects else None
    if signatures is None:
        return {}
    found = {}
    for each in signatures.children:
        node = objects[each.node_id]
        if node.WhichOneof("kind") != "bare_concrete_function":
            raise Disagreement(
                f"signature '{each.local_name}' is not a function"
            )
        found[each.local_name] = node.bare_concrete_function
    return found


def keywords_of(meta: Any, name: str) -> list[str]:
    """The inputs of a signature, in the order of its function's arguments."""
    by_python = python_signatures(meta.object_graph_def.nodes)
    return [*by_python[name].argument_keywords]


def functions_of(objects: Any) -> set[str]:
    """Paths of the functions that are neither signatures nor of tables."""
    found = set()
    remaining, seen = [("", 0)], {0}
    while remaining:
        path, index = remaining.pop()
        node = objects[index]
        for child in node.children:
            name = f"{path}.{child.local_name}".lstrip(".")
            kind = objects[child.node_id].WhichOneof("kind")
            is_own = name == "signatures" or (
                node.WhichOneof("kind") == "resource"
                and child.local_name
                in ("_create_resource", "_initialize", "_destroy_resource")
            )
            if child.node_id in seen or is_own:
                continue
            seen.add(child.node_id)
            if kind in ("function", "bare_concrete_function"):
                found.add(name)
            remaining.append((name, child.node_id))
    return found


def _is_made_alike(node: Any, index: int, meta: Any) -> bool:
    """Whether Python makes a table or its like as the graph's node does."""
    objects, library = meta.object_graph_def.nodes, meta.graph_def.library
    makers = {
        name
        for child in objects[index].children
        if child.local_name == "_create_resource"
        for name in objects[child.node_id].function.concrete_functions
    }
    found = [
        each
        for function in library.function
        if function.signature.name in makers
        for each in function.node_def
        if each.op == node.op
    ]
    return len(found) == 1 and _attributes(found[0]) == _attributes(node)


def _attributes(node: Any) -> dict[str, Any]:
    return {
        key: value.SerializeToString(deterministic=True)
        for key, value in node.attr.items()
        if not key.startswith("_") and key not in ("container", "shared_name")
    }


def check_specs(meta: Any, graph: Any, functions: Mapping[str, Any]) -> None:
    """Raises `Disagreement` where shapes or dtypes contradict one another."""
    import tensorflow as tf

    def told(info: Any) -> tuple[Any, Any]:
        shape = tf.TensorShape(info.tensor_shape)
        return tf.dtypes.as_dtype(info.dtype), _sizes(shape)

    for name, function in functions.items():
        signature = meta.signature_def[name]
        _, inputs = function.structured_input_signature
        sides = (
            (signature.inputs, inputs, True),
            (signature.outputs, function.structured_outputs, False),
        )
        for infos, specs, is_input in sides:
            for key, info in infos.items():
                found = {told(info)}
                if key in specs:
                    spec = specs[key]
                    found.add((spec.dtype, _sizes(spec.shape)))
                tensor = graph.get_tensor_by_name(info.name)
                shape = tensor.shape if is_input else told(info)[1]
                found.add((tensor.dtype, _sizes(shape)))
                if len(found) > 1 or key not in specs:
                    raise Disagreement(
                        f"signature '{name}': '{key}' has more than one shape "
                        "or dtype"
                    )


def _sizes(shape: Any) -> tuple[int | None, ...] | None:
    if shape is None or isinstance(shape, tuple):
        return shape
    return None if shape.rank is None else tuple(shape.as_list())


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
