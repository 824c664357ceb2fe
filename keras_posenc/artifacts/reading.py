"""Reads what an artifact contains, in a process of its own.

Self-contained. Nothing of the artifact is run, and no runtime is loaded: of
TensorFlow and of LiteRT only the modules that know their file formats.
"""

import collections
import json
import mmap
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from importlib import util
from pathlib import Path, PurePosixPath
from typing import Any

# Operators that run Python, read or write files that the graph names, talk to
# others, wait for what nobody may send, or end the process. Models compute;
# they do none of it.
_UNSAFE = re.compile(
    r"(Flex)?("
    r"(Eager)?PyFunc(Stateless)?"
    r"|(Read|Write)File|MatchingFiles|\w*Dataset\w*|\w*Iterator\w*"
    r"|\w*Reader(V2)?|Reader(Read|Restore)\w*|RecordInput"
    r"|\w*SummaryWriter|CreateSummary\w+|Write\w*Summary"
    r"|LoadAndRemapMatrix|GenerateVocabRemapping"
    r"|Debug(Identity|NanCount|NumericSummary)(V\d)?"
    r"|ImmutableConst|Abort|InitializeTableFromTextFile(V2)?"
    r"|Save(V2|Slices)?|DistributedSave|Restore(V2|Slice)?|MergeV2Checkpoints"
    r"|_?(Host)?(Send|Recv)|RemoteCall|Collective\w*|FileSystem\w*"
    r"|\w*Queue(V2|V3)?|Queue(En|De)queue\w*|Barrier\w*|Mutex\w*"
    r"|(Ordered)?Map(Unstage|Stage|Peek)\w*|Stage|Unstage|StagePeek"
    r")"
)

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
        "unsafe": sorted(set(_unsafe(graph, library))),
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
        "unsafe": sorted(
            {
                *filter(_UNSAFE.fullmatch, operators),
                *_naming_files(model, codes),
            }
        ),
        "quantization": _quantization(model, codes, dtype_names),
    }


def _naming_files(model: Any, codes: list[str]) -> Iterator[str]:
    """TensorFlow's operators that are told of a file by an attribute."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            name, options = codes[operator.opcodeIndex], operator.customOptions
            if name in ("FlexDecodeProtoV2", "FlexEncodeProto") or (
                name == "FlexPrintV2"
                and options is not None
                and b"file:" in bytes(options)
            ):
                yield name


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
    for asset in graph.asset_file_def:
        name = PurePosixPath(asset.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in asset.filename:
            raise ValueError(
                f"the asset {asset.filename!r} is not in the folder of assets"
            )


def _unsafe(graph: Any, library: dict[str, Any]) -> Iterator[str]:
    """Operators that no model needs, but for those that save and restore it."""
    saver = graph.saver_def
    roles = {
        saver.save_tensor_name.partition(":")[0]: "save",
        saver.restore_op_name: "restore",
    }
    reached = {
        role: _reached(
            [n for n in graph.graph_def.node if roles.get(n.name) == role],
            library,
        )
        for role in ("save", "restore", None)
    }
    restores = reached["restore"] - reached[None]
    saves = reached["save"] - reached["restore"] - reached[None]
    is_asset = _assets(graph, library)
    for name, nodes in [
        ("", graph.graph_def.node),
        *((name, function.node_def) for name, function in library.items()),
    ]:
        for node in nodes:
            is_saver = (
                name in saves and node.op in ("SaveV2", "MergeV2Checkpoints")
            ) or (name in saves | restores and node.op == "RestoreV2")
            is_vocabulary = node.op.startswith(
                "InitializeTableFromTextFile"
            ) and is_asset(name, node.input[1])
            names_file = (
                node.op == "PrintV2"
                and node.attr["output_stream"].s.startswith(b"file:")
            ) or (
                node.op in ("DecodeProtoV2", "EncodeProto")
                and node.attr["descriptor_source"].s not in (b"", b"local://")
            )
            is_allowed = is_saver or is_vocabulary
            if names_file or (_UNSAFE.fullmatch(node.op) and not is_allowed):
                yield node.op


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
                is_call = node.op in ("PartitionedCall", function) or (
                    node.op == "StatefulPartitionedCall"
                )
                yield is_call and is_asset(scope, node.input[index])
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
    return tensor.partition(":")[0]


def _called(node: Any) -> set[str]:
    """Whatever may be the name of a function that a node calls."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names


def _reached(nodes: Iterable[Any], library: dict[str, Any]) -> set[str]:
    """The functions that nodes call, and those that these call."""
    found: set[str] = set()
    remaining = list(nodes)
    while remaining:
        node = remaining.pop()
        for name in (_called(node) & library.keys()) - found:
            found.add(name)
            remaining.extend(library[name].node_def)
    return found


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
