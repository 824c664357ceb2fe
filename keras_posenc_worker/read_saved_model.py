"""Reads what a SavedModel contains."""

import collections
import re
from collections.abc import Callable, Iterator
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
    """Yields operators on files where TensorFlow writes none.

    Also yields the names of called functions that are missing.
    """
    allowed = _savers(graph, library)
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
    """Returns whether a tensor of a function can only be the path of an asset.

    A server finds that path in a variable of the graph (named ""), which it
    fills on loading; Python finds it among the values captured by the function.
    """
    nodes = [("", node) for node in graph.graph_def.node] + [
        (name, node) for name, f in library.items() for node in f.node_def
    ]
    content = graph.graph_def.SerializeToString()
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
        calls = [each for each in nodes if function in called_by(each[1])]
        # No optimizer, and no deeper attribute of a node, calls it too.
        yield "api_implements" not in library[function].attr
        field = chr(len(function)).encode() + function.encode()
        yield content.count(field) == 1 + len(calls)
        for scope, node in calls:
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


def _savers(graph: Any, library: dict[str, Any]) -> set[str]:
    """Returns the two functions that only save and restore variables.

    TensorFlow calls each by one node, which `saver_def` names, with the path
    that a loader feeds. Nothing else leads to these nodes or to the functions:
    no client, no initializer, no object that Python would make, no collection
    of TensorFlow 1, no optimizer, and no attribute, however deep.
    """
    saver, lists = graph.saver_def, graph.collection_def.values()
    content = graph.SerializeToString()
    nodes = {node.name: node for node in graph.graph_def.node}
    path = node_name(saver.filename_tensor_name)
    uses = collections.Counter(
        node_name(tensor)
        for tensor in (
            *(tensor for node in graph.graph_def.node for tensor in node.input),
            *(
                info.name
                for signature in graph.signature_def.values()
                for infos in (signature.inputs, signature.outputs)
                for info in infos.values()
            ),
            *(name for each in lists for name in each.node_list.value),
        )
    )
    if any(each.WhichOneof("kind") != "node_list" for each in lists):
        return set()
    if path not in nodes or nodes[path].op != "Placeholder" or uses[path] != 2:
        return set()
    found = set()
    ends = {
        node_name(saver.save_tensor_name): _only_saves,
        saver.restore_op_name: _only_restores,  # what a server runs
    }
    for name, is_exact in ends.items():
        node = nodes.get(name)
        if node is None or node.op not in CALLS or uses[name]:
            continue
        function = library.get(node.attr["f"].func.name)
        inputs = [tensor.removesuffix(":0") for tensor in node.input]
        if (
            function is not None
            # Once where it is called, and once where it is.
            and content.count(function.signature.name.encode()) == 2
            and "api_implements" not in function.attr
            and inputs[0] == path
            and len({*inputs}) == len(inputs)
            and is_exact(function)
        ):
            found.add(function.signature.name)
    return found


_PATH = "argument 0"
_MARKS = b".part", b"_temp/part"  # of object stores, and of disks
# Each part of what is saved has the path that a function is given, and a mark.
_PART = (
    rf"ShardedFilename\(StringJoin\({_PATH}, Select(V2)?\(\w+\({_PATH}\), "
    r"\.part, _temp/part\)\), const, const\)"
)
_PARTS = rf"Pack\({_PART}(, {_PART})*\)"


def _only_saves(function: Any) -> bool:
    """Returns whether a function only writes parts at the path it is given."""
    text = _texts(function)

    def is_exact(node: Any) -> bool:
        if node.op == "SaveV2":
            return bool(re.fullmatch(_PART, text(node.input[0])))
        if node.op == "MergeV2Checkpoints":
            parts, path = map(text, node.input[:2])
            return bool(re.fullmatch(_PARTS, parts)) and path == _PATH
        return node.op in (
            *("Const", "Identity", "NoOp", "Pack", "Select", "SelectV2"),
            *("ShardedFilename", "StaticRegexFullMatch", "StringJoin"),
            *("DisableCopyOnRead", "LookupTableExportV2", "ReadVariableOp"),
        )

    return all(map(is_exact, function.node_def))


def _only_restores(function: Any) -> bool:
    """Returns whether a function only reads from the path that it is given."""
    text = _texts(function)
    targets = []
    for node in function.node_def:
        if node.op in ("AssignVariableOp", "LookupTableImportV2"):
            targets.append(text(node.input[0]))
        elif node.op == "RestoreV2":
            if [*map(text, node.input)] != [_PATH, "const", "const"]:
                return False
        elif node.op not in ("Const", "Identity", "NoOp"):
            return False
    # If a variable were restored twice, chance would decide its value.
    return len({*targets}) == len(targets)


def _texts(function: Any) -> Callable[[str], str]:
    """Returns a function that writes out how a tensor is computed."""
    nodes = {node.name: node for node in function.node_def}
    arguments = {
        argument.name: f"argument {index}"
        for index, argument in enumerate(function.signature.input_arg)
    }

    def text(tensor: str) -> str:
        name = node_name(tensor)
        if name not in nodes:
            return arguments.get(name, "?")
        node = nodes[name]
        if node.op == "Identity":
            return text(node.input[0])
        if node.op == "Const":
            values = [*node.attr["value"].tensor.string_val]
            is_mark = len(values) == 1 and values[0] in _MARKS
            return values[0].decode() if is_mark else "const"
        if node.attr["separator"].s:  # between the parts of a name
            return "?"
        given = [text(x) for x in node.input if not x.startswith("^")]
        return f"{node.op}({', '.join(given)})"

    return text
