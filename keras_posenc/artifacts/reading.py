"""Reads what an artifact contains, in a process of its own.

Self-contained. Nothing of the artifact is run, and no runtime is loaded: of
TensorFlow and of LiteRT only the modules that know their file formats.
"""

import collections
import json
import mmap
import sys
import types
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path, PurePosixPath
from typing import Any

_SAVER = ("SaveV2", "MergeV2Checkpoints", "RestoreV2")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")

# What the standard of ONNX defines computes, and does nothing else.
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def prepare(kind: str) -> None:
    """Imports what knows a kind's format ahead of time."""
    if kind == "saved_model":
        _without_its_init("tensorflow")
        from tensorflow.core.protobuf import saved_model_pb2  # noqa: F401
    elif kind == "litert":
        _without_its_init("ai_edge_litert")
        from ai_edge_litert import schema_py_generated  # noqa: F401
    else:
        import onnx  # noqa: F401


def main(kind: str, path: str) -> None:
    """Prints what the artifact holds, or `error` with the reason."""
    read = {
        "saved_model": read_saved_model,
        "litert": read_litert,
        "onnx": read_onnx,
    }
    try:
        found = read[kind](Path(path))
    except MemoryError:
        raise
    except Exception as error:  # a broken file breaks anywhere
        name = "" if type(error) is ValueError else f"{type(error).__name__}: "
        found = {"error": f"{name}{error}"[:2000]}
    print(json.dumps(found))


def read_saved_model(path: Path) -> dict[str, Any]:
    """The contents of a SavedModel folder."""
    _without_its_init("tensorflow")
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
    }


def read_litert(path: Path) -> dict[str, Any]:
    """The contents of a LiteRT file."""
    _without_its_init("ai_edge_litert")
    from ai_edge_litert import schema_py_generated as schema

    with path.open("rb") as file:  # whose weights need not be in memory
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    operator_names = _by_value(schema.BuiltinOperator)
    dtype_names = _by_value(schema.TensorType)
    codes = [
        (
            code.customCode.decode()
            if code.customCode
            # Files from before there were 127 operators use the old field.
            else operator_names[
                max(code.builtinCode, code.deprecatedBuiltinCode)
            ]
        )
        for code in model.operatorCodes
    ]
    operators = collections.Counter(
        codes[operator.opcodeIndex]
        for graph in model.subgraphs
        for operator in graph.operators
    )

    def tensors(graph: Any, maps: Any) -> dict[str, Any]:
        named = {}
        for entry in maps or []:
            tensor = graph.tensors[entry.tensorIndex]
            shape = (
                tensor.shape
                if tensor.shapeSignature is None
                else tensor.shapeSignature
            )
            named[entry.name.decode()] = {
                "shape": [
                    int(size) for size in ([] if shape is None else shape)
                ],
                "dtype": dtype_names[tensor.type].lower(),
            }
        return named

    return {
        "weight_bytes": sum(
            len(buffer.data)
            for buffer in model.buffers
            if buffer.data is not None
        ),
        "signatures": {
            signature.signatureKey.decode(): {
                "inputs": tensors(
                    model.subgraphs[signature.subgraphIndex], signature.inputs
                ),
                "outputs": tensors(
                    model.subgraphs[signature.subgraphIndex], signature.outputs
                ),
            }
            for signature in model.signatureDefs or []
        },
        "operators": dict(operators.most_common()),
        "custom": sorted(
            {
                name
                for name, code in zip(codes, model.operatorCodes, strict=True)
                if code.customCode
            }
        ),
        "unsafe": sorted(set(_by_other_names(model, codes))),
        "quantization": _quantization(model, codes, dtype_names),
    }


def _by_other_names(model: Any, codes: list[str]) -> Iterator[str]:
    """TensorFlow's operators that are not what they are called in the file.

    Its runtime goes by what an operator's options say. There it also finds
    the functions to call, of which the file has none, and names of files.
    """
    for graph in model.subgraphs:
        for operator in graph.operators:
            name = codes[operator.opcodeIndex]
            if not name.startswith("Flex"):
                continue
            node = _node_of(operator)
            if node is None or f"Flex{node.op}" != name:
                yield "Flex" if node is None else f"Flex{node.op}"
            elif _names_a_file(node):
                yield name


def _node_of(operator: Any) -> Any:
    """TensorFlow's node in an operator's options; None if they hold none."""
    _without_its_init("tensorflow")
    from flatbuffers import flexbuffers
    from tensorflow.core.framework import node_def_pb2

    if operator.customOptions is None:
        return None
    options = flexbuffers.GetRoot(bytearray(bytes(operator.customOptions)))
    if not options.IsVector or len(options.AsVector) != 2:
        return None
    # As text: whichever of the two a runtime goes by must be the other.
    name, content = (bytes(each.AsStringBytes) for each in options.AsVector)
    node = node_def_pb2.NodeDef.FromString(content)
    return node if node.op.encode() == name else None


def _names_a_file(node: Any) -> bool:
    return node.op == "PrintV2" and bool(
        node.attr["output_stream"].s.startswith(b"file:")
    )


def _quantization(
    model: Any, codes: list[str], dtype_names: dict[int, str]
) -> str | None:
    """The mode that the constants, and what they meet, are of."""
    dtypes = set()
    for graph in model.subgraphs:
        for operator in graph.operators:
            if codes[operator.opcodeIndex] == "QUANTIZE":
                dtypes.add("QUANTIZE")
            for index in operator.inputs:
                tensor = graph.tensors[index]
                if index >= 0 and model.buffers[tensor.buffer].data is not None:
                    dtypes.add(dtype_names[tensor.type])
    if "INT8" in dtypes:
        return "int8-static" if "QUANTIZE" in dtypes else "int8"
    return "float16" if "FLOAT16" in dtypes else None


def read_onnx(path: Path) -> dict[str, Any]:
    """The contents of an ONNX file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in _messages(model, onnx.TensorProto):
        if (
            tensor.data_location == onnx.TensorProto.EXTERNAL
            or tensor.external_data
        ):
            raise ValueError(
                f"the numbers of its tensor {tensor.name!r} are in another file"
            )
    onnx.checker.check_model(model)
    graph = model.graph

    def tensors(values: Any) -> dict[str, Any]:
        return {
            value.name: {
                "shape": [
                    size.dim_value if size.HasField("dim_value") else -1
                    for size in value.type.tensor_type.shape.dim
                ]
                if value.type.tensor_type.HasField("shape")
                else None,
                "dtype": onnx.helper.tensor_dtype_to_np_dtype(
                    value.type.tensor_type.elem_type
                ).name,
            }
            for value in values
        }

    own = {(each.domain, each.name) for each in model.functions}
    nodes = [
        node
        for node in _messages(model, onnx.NodeProto)
        if (node.domain, node.op_type) not in own
    ]
    operators = collections.Counter(node.op_type for node in nodes)
    # Those of other domains are whatever somebody has made them.
    foreign = sorted(
        {node.op_type for node in nodes if node.domain not in _ONNX_DOMAINS}
    )
    return {
        "weight_bytes": sum(
            onnx.numpy_helper.to_array(each).nbytes
            for each in graph.initializer
        ),
        "signatures": {
            graph.name: {
                "inputs": tensors(graph.input),
                "outputs": tensors(graph.output),
            }
        },
        "operators": dict(operators.most_common()),
        "custom": foreign,
        "unsafe": foreign,
    }


def _messages(message: Any, kind: type) -> Iterator[Any]:
    """Each message of a kind inside of another, wherever it is."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            is_one = hasattr(value, "ListFields")
            for each in [value] if is_one else value:
                yield from _messages(each, kind)


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
    """What has to do with files, elsewhere than where TensorFlow has it.

    And functions that are called, and not there.
    """
    savers = _savers(graph, library)
    is_asset = _assets(graph, library)
    for scope, nodes in [
        ("", graph.graph_def.node),
        *((name, function.node_def) for name, function in library.items()),
    ]:
        for node in nodes:
            if (
                (node.op in _SAVER and scope not in savers)
                or (
                    node.op.startswith("InitializeTableFromTextFile")
                    and not is_asset(scope, node.input[1])
                )
                or _names_a_file(node)
            ):
                yield node.op
            yield from _called(node) - library.keys() - {node.op, ""}


def _savers(graph: Any, library: dict[str, Any]) -> set[str]:
    """The two functions that save and restore variables, and nothing else.

    TensorFlow calls each by one node, which `saver_def` names, with the path
    that a loader feeds. Nothing else leads to these nodes or to the functions:
    no client, no initializer, and no object that Python would make.
    """
    saver = graph.saver_def
    objects = graph.object_graph_def.SerializeToString()
    nodes = {node.name: node for node in graph.graph_def.node}
    path = _name(saver.filename_tensor_name)
    ends = {
        _name(saver.save_tensor_name): _only_saves,
        saver.restore_op_name: _only_restores,
    }
    callers = collections.Counter(
        name
        for each in (
            *graph.graph_def.node,
            *(node for f in library.values() for node in f.node_def),
        )
        for name in _called(each)
    )
    led_to = {
        _name(tensor)
        for node in graph.graph_def.node
        for tensor in node.input
        if node.name not in ends or _name(tensor) != path
    }
    for signature in graph.signature_def.values():
        for infos in (signature.inputs, signature.outputs):
            led_to.update(_name(info.name) for info in infos.values())
    for collection in graph.collection_def.values():
        led_to.update(map(_name, collection.node_list.value))
    if path not in nodes or nodes[path].op != "Placeholder" or path in led_to:
        return set()
    found = set()
    for name, is_exact in ends.items():
        node = nodes.get(name)
        if node is None or node.op not in _CALLS or name in led_to:
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
        node = self._nodes.get(_name(self.source(tensor)))
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
            node := self._nodes.get(_name(tensor))
        ) is not None and node.op == "Identity":
            if tensor in seen:  # a circle
                return ""
            seen.add(tensor)
            tensor = node.input[0]
        return tensor


def _data(node: Any) -> list[str]:
    """What a node takes, without what it only waits for."""
    return [tensor for tensor in node.input if not tensor.startswith("^")]


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
        name = _name(tensor)
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
            return all(assigned(_name(node.input[0])))
        # Nothing runs a placeholder that the loader does not fill.
        return node.op == "Placeholder" and f"{name}:0" in assets

    def passed(function: str, index: int, count: int) -> Iterator[bool]:
        for scope, node in nodes:
            if function in _called(node):
                yield node.op in (*_CALLS, function) and is_asset(
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
            if not scope and variable in map(_name, node.input):
                yield node.op in ("ReadVariableOp", "VarIsInitializedOp") or (
                    node.op == "AssignVariableOp"
                    and is_asset("", node.input[1])
                )

    return is_asset


def _name(tensor: str) -> str:
    """The node, or the argument, whose output a tensor is."""
    return tensor.removeprefix("^").partition(":")[0]


def _output(tensor: str) -> str:
    """A tensor's name in one form only."""
    return tensor.removesuffix(":0")


def _called(node: Any) -> set[str]:
    """Whatever may be the name of a function that a node calls."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names


def _without_its_init(package: str) -> None:
    """Lets modules be imported without what their package loads first."""
    if package in sys.modules:
        return
    spec = util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{package} is not installed")
    module = types.ModuleType(package)
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules[package] = module


def _by_value(names: type) -> dict[int, str]:
    return {
        value: name
        for name, value in vars(names).items()
        if isinstance(value, int)
    }
