"""Which functions of a SavedModel save and restore, and nothing else."""

import collections
from typing import Any

from keras_posenc.export.isolated.reading.nodes import (
    CALLS,
    called_by,
    node_name,
)

SAVER = ("SaveV2", "MergeV2Checkpoints", "RestoreV2")


def savers(graph: Any, library: dict[str, Any]) -> set[str]:
    """The two functions that save and restore variables, and nothing else.

    TensorFlow calls each by one node, which `saver_def` names, with the path
    that a loader feeds. Nothing else leads to these nodes or to the functions:
    no client, no initializer, and no object that Python would make.
    """
    saver = graph.saver_def
    objects = graph.object_graph_def.SerializeToString()
    nodes = {node.name: node for node in graph.graph_def.node}
    path = node_name(saver.filename_tensor_name)
    ends = {
        node_name(saver.save_tensor_name): _only_saves,
        saver.restore_op_name: _only_restores,
    }
    callers = collections.Counter(
        name
        for each in (
            *graph.graph_def.node,
            *(node for f in library.values() for node in f.node_def),
        )
        for name in called_by(each)
    )
    led_to = {
        node_name(tensor)
        for node in graph.graph_def.node
        for tensor in node.input
        if node.name not in ends or node_name(tensor) != path
    }
    for signature in graph.signature_def.values():
        for infos in (signature.inputs, signature.outputs):
            led_to.update(node_name(info.name) for info in infos.values())
    for collection in graph.collection_def.values():
        led_to.update(map(node_name, collection.node_list.value))
    if path not in nodes or nodes[path].op != "Placeholder" or path in led_to:
        return set()
    found = set()
    for name, is_exact in ends.items():
        node = nodes.get(name)
        if node is None or node.op not in CALLS or name in led_to:
            continue
        function = library.get(node.attr["f"].func.name)
        if (
            function is not None
            and callers[function.signature.name] == 1
            and function.signature.name.encode() not in objects
            and node.input[0] in (path, f"{path}:0")
            and len({_output(tensor) for tensor in node.input})
            == len(node.input)
            and is_exact(function)
        ):
            found.add(function.signature.name)
    return found


def _only_saves(function: Any) -> bool:
    """Whether a function writes to the path that it is given, in parts."""
    body = _Body(function)
    marks = (b".part", b"_temp/part")  # of object stores, and of disks

    def is_part(tensor: str) -> bool:
        name = body.of(tensor, "ShardedFilename")
        if name is None or not all(
            body.of(each, "Const") for each in name.input[1:]
        ):
            return False
        join = body.of(name.input[0], "StringJoin")
        if join is None or len(join.input) != 2 or join.attr["separator"].s:
            return False
        mark = body.of(join.input[1], "Select", "SelectV2")
        return (
            mark is not None
            and body.is_path(join.input[0])
            and tuple(map(body.text, mark.input[1:3])) == marks
        )

    def is_exact(node: Any) -> bool:
        if node.op == "SaveV2":
            return is_part(node.input[0])
        if node.op == "MergeV2Checkpoints":
            parts = body.of(node.input[0], "Pack")
            return (
                parts is not None
                and all(map(is_part, _data(parts)))
                and body.is_path(node.input[1])
            )
        return node.op in (
            *("Const", "Identity", "NoOp", "Pack", "Select", "SelectV2"),
            *("ShardedFilename", "StaticRegexFullMatch", "StringJoin"),
            *("DisableCopyOnRead", "LookupTableExportV2", "ReadVariableOp"),
        )

    return all(map(is_exact, function.node_def))


def _only_restores(function: Any) -> bool:
    """Whether a function reads from the path that it is given."""
    body = _Body(function)

    def is_exact(node: Any) -> bool:
        if node.op == "RestoreV2":
            return body.is_path(node.input[0]) and all(
                body.of(tensor, "Const") for tensor in node.input[1:3]
            )
        return node.op in (
            *("Const", "Identity", "NoOp"),
            *("AssignVariableOp", "LookupTableImportV2"),
        )

    targets = [
        body.source(node.input[0])
        for node in function.node_def
        if node.op in ("AssignVariableOp", "LookupTableImportV2")
    ]
    # Else it would depend on chance which of two values is restored.
    return len(set(targets)) == len(targets) and all(
        map(is_exact, function.node_def)
    )


class _Body:
    """The nodes of a function, by the tensors that they make."""

    def __init__(self, function: Any) -> None:
        arguments = function.signature.input_arg
        self._path = arguments[0].name if arguments else None
        self._nodes = {node.name: node for node in function.node_def}

    def of(self, tensor: str, *operators: str) -> Any:
        """The node that a tensor comes from, if it is of these operators."""
        node = self._nodes.get(node_name(self.source(tensor)))
        return node if node is not None and node.op in operators else None

    def is_path(self, tensor: str) -> bool:
        """Whether a tensor is the function's first argument."""
        return self._path is not None and self.source(tensor) == self._path

    def text(self, tensor: str) -> bytes | None:
        """The string that a tensor always is."""
        node = self.of(tensor, "Const")
        texts = [] if node is None else node.attr["value"].tensor.string_val
        return texts[0] if len(texts) == 1 else None

    def source(self, tensor: str) -> str:
        seen = set()
        while (
            node := self._nodes.get(node_name(tensor))
        ) is not None and node.op == "Identity":
            if tensor in seen:  # a circle
                return ""
            seen.add(tensor)
            tensor = node.input[0]
        return tensor


def _data(node: Any) -> list[str]:
    """What a node takes, without what it only waits for."""
    return [tensor for tensor in node.input if not tensor.startswith("^")]


def _output(tensor: str) -> str:
    """A tensor's name in one form only."""
    return tensor.removesuffix(":0")
