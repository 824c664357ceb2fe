"""Reads what a SavedModel contains."""

import collections
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from keras_posenc.export.isolated.reading.formats import without_its_init
from keras_posenc.export.isolated.reading.nodes import (
    CALLS,
    called_by,
    names_a_file,
    node_name,
)
from keras_posenc.export.isolated.reading.savers import SAVER, savers


def read_saved_model(path: Path) -> dict[str, Any]:
    """The contents of a SavedModel folder."""
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
        "has_variables": "VarHandleOp" in operators,
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
    """Operators on files in places where TensorFlow writes none.

    And functions that are called, and not there.
    """
    allowed = savers(graph, library)
    is_asset = _assets(graph, library)
    for scope, nodes in [
        ("", graph.graph_def.node),
        *((name, function.node_def) for name, function in library.items()),
    ]:
        for node in nodes:
            if (
                (node.op in SAVER and scope not in allowed)
                or (
                    node.op.startswith("InitializeTableFromTextFile")
                    and not is_asset(scope, node.input[1])
                )
                or names_a_file(node)
            ):
                yield node.op
            yield from called_by(node) - library.keys() - {node.op, ""}


def _assets(graph: Any, library: dict[str, Any]) -> Callable[[str, str], bool]:
    """Tells whether a tensor of a function can only be the path of an asset.

    A server finds that path in a variable of the graph (of the name ""), which
    it fills as it loads, and Python among what the function was saved with.
    """
    nodes = [("", node) for node in graph.graph_def.node] + [
        (name, node) for name, f in library.items() for node in f.node_def
    ]
    by_name = {(scope, node.name): node for scope, node in nodes}
    assets = {asset.tensor_info.name for asset in graph.asset_file_def}
    for signature in graph.signature_def.values():  # a client may send these
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
        # Nothing runs a placeholder that the loader does not fill.
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
