"""Reads what a SavedModel contains."""

import collections
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
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
    """Yields operators on files where loading or a signature may run them.

    Also yields the names of called functions that are missing.
    """
    saves, restores = _savers(graph, library)
    is_asset = _assets(graph, library)
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
            elif node.op.startswith("InitializeTableFromTextFile"):
                is_right = is_asset(scope, node.input[1])
            elif node.op == "PrintV2":
                stream = node.attr["output_stream"]
                # `placeholder`: what a function is called with.
                is_right = not (
                    stream.placeholder or stream.s.startswith(b"file:")
                )
            else:
                is_right = True
            if not is_right:
                yield node.op
            yield from _called_by(node) - library.keys() - {node.op, ""}


def _savers(graph: Any, library: dict[str, Any]) -> list[str | None]:
    """Returns the functions that save and restore, if nothing else calls them.

    `saver_def` names a node for each. Whoever loads the graph runs the one that
    restores, with a path that it feeds, and never the one that saves: no
    signature, no initializer, no object of Python and no other function leads
    to them.
    """
    saver, content = graph.saver_def, graph.SerializeToString()
    nodes = {node.name: node for node in graph.graph_def.node}
    save, restore = _node_name(saver.save_tensor_name), saver.restore_op_name
    run, pending = set[str](), [*getattr(nodes.get(restore), "input", ())]
    for signature in graph.signature_def.values():
        for infos in (signature.inputs, signature.outputs):
            pending += [info.name for info in infos.values()]
    lists = graph.collection_def.values()
    for each in lists:
        pending += each.node_list.value
    while pending:
        name = _node_name(pending.pop())
        if name in nodes and name not in run:
            run.add(name)
            pending += nodes[name].input

    def called_once(name: str) -> str | None:
        node = nodes.get(name)
        if node is None or name in run or node.op not in _CALLS:
            return None
        function = node.attr["f"].func.name
        is_only = (
            function in library
            # Once where it is called, and once where it is.
            and content.count(function.encode()) == 2
            and "api_implements" not in library[function].attr  # by optimizers
        )
        return function if is_only else None

    # TensorFlow 1 runs what collections name in other ways.
    is_plain = all(each.WhichOneof("kind") == "node_list" for each in lists)
    if not is_plain or save == restore or not {save, restore} <= {*nodes}:
        return [None, None]
    path = saver.filename_tensor_name.removesuffix(":0")
    given = [x.removesuffix(":0") for x in _inputs(nodes[restore])]
    is_fed = (
        given[:1] == [path]
        and path in nodes
        and nodes[path].op == "Placeholder"
    )
    return [called_once(save), called_once(restore) if is_fed else None]


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
    objects = graph.object_graph_def
    assets = {asset.tensor_info.name for asset in graph.asset_file_def}
    for signature in graph.signature_def.values():  # clients may send these
        assets -= {info.name for info in signature.inputs.values()}

    def is_asset(scope: str, tensor: str) -> bool:
        name = _node_name(tensor)
        if scope:
            arguments = [arg.name for arg in library[scope].signature.input_arg]
            if name in arguments:
                return is_passed(scope, arguments.index(name) - len(arguments))
        node = by_name[scope, name]
        if node.op == "Identity":
            return is_asset(scope, node.input[0])
        if node.op == "ReadVariableOp" and not scope:
            return is_filled(_node_name(node.input[0]))
        # Other placeholders fail when they are run.
        return node.op == "Placeholder" and not scope and f"{name}:0" in assets

    def is_passed(function: str, index: int) -> bool:
        """... as an argument, of which the last ones are captured."""
        calls = [each for each in nodes if function in _called_by(each[1])]
        field = chr(len(function)).encode() + function.encode()
        captured = ["asset"]
        if function in objects.concrete_functions:
            bound = objects.concrete_functions[function].bound_inputs
            captured = [
                f"{objects.nodes[each].WhichOneof('kind')}"
                for each in bound[index:][:1]
                if len(bound) >= -index
            ]
        return (
            captured == ["asset"]
            # No optimizer, and no deeper attribute of a node, calls it too.
            and "api_implements" not in library[function].attr
            and content.count(field) == 1 + len(calls)
            and all(
                node.op in (*_CALLS, function)
                and is_asset(scope, _inputs(node)[index])
                for scope, node in calls
            )
        )

    def is_filled(variable: str) -> bool:
        shared_name = by_name["", variable].attr["shared_name"]
        handles = [
            node.name
            for _, node in nodes
            if node.op == "VarHandleOp"
            and node.attr["shared_name"] == shared_name
        ]
        return handles == [variable] and all(
            node.op in ("ReadVariableOp", "VarIsInitializedOp")
            or (node.op == "AssignVariableOp" and is_asset("", node.input[1]))
            for scope, node in nodes
            if not scope and variable in map(_node_name, node.input)
        )

    return is_asset


def _inputs(node: Any) -> list[str]:
    """Returns the tensors that a node is given; not what it waits for."""
    return [tensor for tensor in node.input if not tensor.startswith("^")]


def _node_name(tensor: str) -> str:
    """Returns the node, or the argument, that a tensor is an output of."""
    return tensor.removeprefix("^").partition(":")[0]


def _called_by(node: Any) -> set[str]:
    """Returns all names that may be functions called by a node."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names
