"""Reads what a SavedModel contains."""

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import without_its_init

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def read_saved_model(path: Path) -> dict[str, Any]:
    """Returns the contents of a SavedModel folder."""
    without_its_init("tensorflow")
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    if (count := len(message.meta_graphs)) != 1:
        raise ValueError(
            f"saved_model.pb must hold one graph, and holds {count or 'none'}"
        )
    (graph,) = message.meta_graphs

    def dtype(number: int) -> str:
        name = types_pb2.DataType.Name(number).removeprefix("DT_").lower()
        return {
            **{"half": "float16", "float": "float32", "double": "float64"},
            # A ragged or sparse tensor is several, and has no dtype.
            "invalid": "composite",
        }.get(name, name)

    def tensors(infos: Any) -> dict[str, Any]:
        return {
            name: {
                "shape": None
                if info.tensor_shape.unknown_rank
                else [dim.size for dim in info.tensor_shape.dim],
                "dtype": dtype(info.dtype),
            }
            for name, info in sorted(infos.items())
        }

    library = {f.signature.name: f for f in graph.graph_def.library.function}
    nodes = [
        *graph.graph_def.node,
        *(node for f in library.values() for node in f.node_def),
    ]
    operators = collections.Counter(
        node.op for node in nodes if node.op not in library
    )
    return {
        "signatures": {
            name: {
                "inputs": tensors(signature.inputs),
                "outputs": tensors(signature.outputs),
            }
            for name, signature in sorted(graph.signature_def.items())
            if name != "__saved_model_init_op"
        },
        "operators": dict(operators.most_common()),
        # Strings are names of weights, and paths of assets.
        "has_variables": any(
            node.op == "VarHandleOp"
            and node.attr["dtype"].type != types_pb2.DT_STRING
            for node in nodes
        ),
        "weight_bytes": sum(
            node.attr["value"].tensor.ByteSize()
            for node in graph.graph_def.node
            if node.op == "Const"
            and node.attr["dtype"].type != types_pb2.DT_STRING
        ),
        "unsafe": sorted(set(_misplaced(graph, library))),
    }


def _misplaced(graph: Any, library: dict[str, Any]) -> Iterator[str]:
    """Yields misplaced operators on files, and functions that are missing."""
    saves, restores = _savers(graph, library)
    for scope, nodes in [
        ("", graph.graph_def.node),
        *((name, function.node_def) for name, function in library.items()),
    ]:
        for node in nodes:
            if node.op in ("SaveV2", "MergeV2Checkpoints"):
                is_right = scope == saves
            elif node.op == "RestoreV2":
                is_right = scope == restores and node.input[0] == (
                    library[scope].signature.input_arg[0].name
                )
            else:
                is_right = True
            if not is_right:
                yield node.op
            yield from _called_by(node) - library.keys() - {node.op, ""}


def _savers(graph: Any, library: dict[str, Any]) -> list[str | None]:
    """Returns the functions that save and restore, if nothing else calls them.

    `saver_def` names a node for each. Whoever loads the graph runs the one that
    restores, with a path. No signature, collection or node may name either.
    """
    saver, content = graph.saver_def, graph.SerializeToString()
    nodes = {node.name: node for node in graph.graph_def.node}
    named = [tensor for node in nodes.values() for tensor in node.input]
    for signature in graph.signature_def.values():
        for infos in (signature.inputs, signature.outputs):
            named += [info.name for info in infos.values()]
    for each in graph.collection_def.values():
        if each.WhichOneof("kind") != "node_list":  # as TensorFlow 1 wrote
            return [None, None]
        named += each.node_list.value
    used = {*map(_node_name, named)}
    save, restore = _node_name(saver.save_tensor_name), saver.restore_op_name
    if save == restore or not {save, restore} <= {*nodes}:
        return [None, None]

    def called_once(name: str) -> str | None:
        node = nodes[name]
        if name in used or node.op not in _CALLS:
            return None
        function = node.attr["f"].func.name
        is_only = (
            function in library
            # Once where it is called, and once where it is.
            and content.count(function.encode()) == 2
            and "api_implements" not in library[function].attr  # by optimizers
        )
        return function if is_only else None

    path = _node_name(saver.filename_tensor_name)
    is_fed = (
        nodes[restore].input[0] in (path, f"{path}:0")
        and path in nodes
        and nodes[path].op == "Placeholder"
    )
    return [called_once(save), called_once(restore) if is_fed else None]


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _called_by(node: Any) -> set[str]:
    """Returns all names that may be functions called by a node."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
