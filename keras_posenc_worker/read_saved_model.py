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

SAVER = {"SaveV2", "MergeV2Checkpoints", "RestoreV2"}
_STRING = 7  # types_pb2.DT_STRING


def read_saved_model(path: Path) -> dict[str, Any]:
    """Returns the contents of a SavedModel folder."""
    without_its_init("tensorflow")
    from tensorflow.core.protobuf import saved_model_pb2

    message = saved_model_pb2.SavedModel()
    message.ParseFromString((path / "saved_model.pb").read_bytes())
    if (count := len(message.meta_graphs)) != 1:
        raise ValueError(
            f"saved_model.pb must hold one graph, and holds {count or 'none'}"
        )
    (graph,) = message.meta_graphs

    def tensors(infos: Any) -> dict[str, Any]:
        return {
            name: {
                "shape": None
                if info.tensor_shape.unknown_rank
                else [dim.size for dim in info.tensor_shape.dim],
                "dtype": info.dtype,
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
            node.op == "VarHandleOp" and node.attr["dtype"].type != _STRING
            for node in nodes
        ),
        "constant_bytes": sum(
            node.attr["value"].tensor.ByteSize()
            for node in graph.graph_def.node
            if node.op == "Const" and node.attr["dtype"].type != _STRING
        ),
        "unsafe": sorted(set(_misplaced(graph, library))),
        "assets": [asset.filename for asset in graph.asset_file_def],
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
    """Yields operators on files that are reached where TensorFlow has none.

    Also yields the names of called functions that are missing. Operators that
    never may be there are refused by their names, whether reached or not.
    """
    saver = graph.saver_def
    main = graph.graph_def.node
    named = {node_name(tensor) for node in main for tensor in node.input}
    for signature in graph.signature_def.values():
        for infos in (signature.inputs, signature.outputs):
            named.update(map(node_name, _tensors_of(*infos.values())))
    for collection in graph.collection_def.values():
        named.update(map(node_name, collection.node_list.value))
    # A loader feeds the path to these two, and fetches only the second.
    ends = {node_name(saver.save_tensor_name), saver.restore_op_name} - named
    objects = graph.object_graph_def.SerializeToString()
    run = [
        *(node for node in main if node.name not in ends),
        # Python may call what its objects name.
        *(
            node
            for name, function in library.items()
            if name.encode() in objects
            for node in function.node_def
        ),
    ]
    load = [node for node in main if node.name == saver.restore_op_name]
    reached = [node.op for node in _closure(run, library)]
    yield from SAVER & {*reached}
    restoring = {node.op for node in _closure(load, library)}
    yield from SAVER & restoring - {"RestoreV2"}
    is_asset = _assets(graph, library)
    for scope, nodes in _scopes(graph, library):
        for node in nodes:
            if names_a_file(node) or (
                node.op.startswith("InitializeTableFromTextFile")
                and not is_asset(scope, node.input[1])
            ):
                yield node.op
            yield from called_by(node) - library.keys() - {node.op, ""}


def _tensors_of(*infos: Any) -> Iterator[str]:
    """Yields the tensors' names, also of ragged and sparse ones."""
    for info in infos:
        sparse = info.coo_sparse
        yield from (
            *(info.name, sparse.values_tensor_name),
            *(sparse.indices_tensor_name, sparse.dense_shape_tensor_name),
        )
        yield from _tensors_of(*info.composite_tensor.components)


def _closure(nodes: Iterable[Any], library: dict[str, Any]) -> Iterator[Any]:
    """Yields nodes, and those of all functions that they lead to."""
    remaining, seen = [*nodes], set[str]()
    while remaining:
        node = remaining.pop()
        yield node
        for name in (called_by(node) & library.keys()) - seen:
            seen.add(name)
            remaining.extend(library[name].node_def)


def _scopes(graph: Any, library: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the nodes of the graph, named "", and of each function."""
    functions = [(name, each.node_def) for name, each in library.items()]
    return [("", graph.graph_def.node), *functions]


def _assets(graph: Any, library: dict[str, Any]) -> Callable[[str, str], bool]:
    """Returns whether a tensor of a function can only be the path of an asset.

    A server finds that path in a variable of the graph, which it fills on
    loading; Python finds it among the values captured by the function.
    """
    nodes = [
        (scope, node)
        for scope, each in _scopes(graph, library)
        for node in each
    ]
    by_name = {(scope, node.name): node for scope, node in nodes}
    assets = {asset.tensor_info.name for asset in graph.asset_file_def}
    for signature in graph.signature_def.values():  # clients may send these
        assets -= {info.name for info in signature.inputs.values()}
    objects = graph.object_graph_def

    def is_asset(scope: str, tensor: str) -> bool:
        name = node_name(tensor)
        node = by_name.get((scope, name))
        if node is None:
            arguments = [arg.name for arg in library[scope].signature.input_arg]
            return all(passed(scope, arguments.index(name), len(arguments)))
        if node.op == "Identity":
            return is_asset(scope, node.input[0])
        if node.op == "ReadVariableOp" and not scope:
            # Whichever variable it is: others of texts are left alone, too.
            return all(
                not place and is_asset(place, each.input[1])
                for place, each in nodes
                if each.op == "AssignVariableOp"
                and each.attr["dtype"].type == _STRING
            )
        # Other placeholders fail when they are run.
        return node.op == "Placeholder" and f"{name}:0" in assets

    def passed(function: str, index: int, count: int) -> Iterator[bool]:
        for scope, node in nodes:
            if function in called_by(node):
                yield node.op in (*CALLS, function) and is_asset(
                    scope, node.input[index]
                )
        if function in objects.concrete_functions:
            bound = objects.concrete_functions[function].bound_inputs
            place = index - (count - len(bound))  # the last arguments are bound
            yield (
                place >= 0
                and objects.nodes[bound[place]].WhichOneof("kind") == "asset"
            )

    return is_asset
