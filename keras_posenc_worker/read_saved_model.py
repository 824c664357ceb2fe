"""Reads what a SavedModel contains."""

import collections
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from keras_posenc_worker.formats import without_its_init
from keras_posenc_worker.nodes import (
    CALLS,
    called_by,
    names_a_file,
    node_name,
)

SAVER = ("SaveV2", "MergeV2Checkpoints", "RestoreV2")


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
    _check_assets(graph)
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


def _check_assets(graph: Any) -> None:
    """Raises `ValueError` for an asset outside of the folder of assets."""
    if "saved_model_assets" in graph.collection_def:
        raise ValueError(
            "a collection names its assets, as TensorFlow 1 wrote them, and "
            "not its asset_file_def"
        )
    for asset in graph.asset_file_def:
        name = PurePosixPath(asset.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in asset.filename:
            raise ValueError(
                f"the asset {asset.filename!r} is not in the folder of assets"
            )


def _misplaced(graph: Any, library: dict[str, Any]) -> Iterator[str]:
    """Yields operators on files that are run where TensorFlow runs none.

    Nothing that is loaded or served saves, and only a server that loads the
    variables restores. Also yields the names of called functions that are
    missing.
    """
    is_asset, restorer = _assets(graph, library), _restorer(graph, library)
    objects = graph.object_graph_def.SerializeToString()
    for _, node in _reached(
        graph,
        library,
        [
            *(
                info.name
                for signature in graph.signature_def.values()
                for info in signature.outputs.values()
            ),
            *(
                name
                for collection in graph.collection_def.values()
                for name in collection.node_list.value
            ),
        ],
        {name for name in library if name.encode() in objects},
    ):
        if node.op in SAVER:
            yield node.op
    loading = [graph.saver_def.restore_op_name]
    for scope, node in _reached(graph, library, loading, set()):
        if node.op in SAVER and (node.op != "RestoreV2" or scope != restorer):
            yield node.op
    for scope, nodes in [
        ("", graph.graph_def.node),
        *((name, function.node_def) for name, function in library.items()),
    ]:
        for node in nodes:
            if (
                node.op.startswith("InitializeTableFromTextFile")
                and not is_asset(scope, node.input[1])
            ) or names_a_file(node):
                yield node.op
            yield from called_by(node) - library.keys() - {node.op, ""}


def _reached(
    graph: Any,
    library: dict[str, Any],
    tensors: Iterable[str],
    functions: set[str],
) -> Iterator[tuple[str, Any]]:
    """Yields all nodes that tensors and functions lead to.

    Each with the name of its function, or "" in the graph.
    """
    by_name = {node.name: node for node in graph.graph_def.node}
    left, seen = [*map(node_name, tensors)], set()
    while left:
        node = by_name.get(left.pop())
        if node is not None and node.name not in seen:
            seen.add(node.name)
            yield "", node
            left += map(node_name, node.input)
            functions |= called_by(node)
    done = set()
    while functions:
        name = functions.pop()
        if name in library and name not in done:
            done.add(name)
            for node in library[name].node_def:
                yield name, node
                functions |= called_by(node)


def _restorer(graph: Any, library: dict[str, Any]) -> str:
    """Returns the function that reads from the path that a loader feeds."""
    saver = graph.saver_def
    nodes = {node.name: node for node in graph.graph_def.node}
    path, node = (
        nodes.get(node_name(name))
        for name in (saver.filename_tensor_name, saver.restore_op_name)
    )
    if path is None or node is None or path.op != "Placeholder":
        return ""
    function = library.get(node.attr["f"].func.name)
    if function is None or node_name(node.input[0]) != path.name:
        return ""
    given = {function.signature.input_arg[0].name}
    given |= {
        each.name
        for each in function.node_def
        if each.op == "Identity" and node_name(each.input[0]) in given
    }
    is_exact = all(
        node_name(each.input[0]) in given
        for each in function.node_def
        if each.op == "RestoreV2"
    )
    return function.signature.name if is_exact else ""


def _assets(graph: Any, library: dict[str, Any]) -> Callable[[str, str], bool]:
    """Returns whether a tensor of a function can only be the path of an asset.

    A server finds that path in a variable of the graph (named ""), which it
    fills on loading; Python finds it among the values captured by the function.
    """
    nodes = [("", node) for node in graph.graph_def.node] + [
        (name, node) for name, f in library.items() for node in f.node_def
    ]
    by_name = {(scope, node.name): node for scope, node in nodes}
    assets = {asset.tensor_info.name for asset in graph.asset_file_def}
    for signature in graph.signature_def.values():  # clients may send these
        assets -= {info.name for info in signature.inputs.values()}

    def is_asset(scope: str, tensor: str) -> bool:
        name = node_name(tensor)
        if scope:
            arguments = [arg.name for arg in library[scope].signature.input_arg]
            if name in arguments:
                return all(passed(scope, arguments.index(name), len(arguments)))
        node = by_name[scope, name]
        if node.op == "Identity":
            return is_asset(scope, node.input[0])
        if scope:
            return False
        if node.op == "ReadVariableOp":
            return all(assigned(node_name(node.input[0])))
        # Other placeholders fail when they are run.
        return node.op == "Placeholder" and f"{name}:0" in assets

    def passed(function: str, index: int, count: int) -> Iterator[bool]:
        for scope, node in nodes:
            if function in called_by(node):
                yield node.op in (*CALLS, function) and is_asset(
                    scope, node.input[index]
                )
        objects = graph.object_graph_def
        if function in objects.concrete_functions:
            bound = objects.concrete_functions[function].bound_inputs
            place = index - (count - len(bound))  # the last arguments are bound
            yield (
                place >= 0
                and objects.nodes[bound[place]].WhichOneof("kind") == "asset"
            )

    def assigned(variable: str) -> Iterator[bool]:
        shared_name = by_name["", variable].attr["shared_name"]
        handles = [
            node.name
            for _, node in nodes
            if node.op == "VarHandleOp"
            and node.attr["shared_name"] == shared_name
        ]
        yield handles == [variable]
        for scope, node in nodes:
            if not scope and variable in map(node_name, node.input):
                yield node.op in ("ReadVariableOp", "VarIsInitializedOp") or (
                    node.op == "AssignVariableOp"
                    and is_asset("", node.input[1])
                )

    return is_asset
