"""A SavedModel as servers read it, and beside it as Python does.

A server (TensorFlow Serving, the C API) asks a session: of `signature_def`, the
graph, and the graph's own nodes that restore and initialize. Python's
`tf.saved_model.load` goes by another part of the same file, the object graph.
Both are read here, and must be the same.
Self-contained, as `worker.py` is, which loads it by its path.
"""

import collections
import dataclasses
import graphlib
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Runner = Callable[[dict[str, Any]], dict[str, Any]]
_INIT = "__saved_model_init_op"
_PREDICT = "tensorflow/serving/predict"
_VARIABLE = "VarHandleOp"
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Of the attributes that begin so, those that say by what a node is run.
_KERNELS = ("_XlaMustCompile", "_kernel")


class Disagreement(Exception):
    """What a server and Python would read otherwise, in words."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What the answers of a signature are made of.

    Attributes:
        weights: The variables, tables and tensors that its function reads, in
            the function's order: the name and the digest of each, or None
            where its value cannot be read.
        constants: How often each constant is in its function, and in those
            that this one calls; the numbers among attributes too.
        graph: By the name of each output, a digest of all the operators that
            it comes from, and of how they are joined: not of their names, nor
            of the functions that they are divided into. By "" one of those that
            do more than give outputs, such as assigning a variable.
    """

    weights: list[tuple[str, str | None]]
    constants: dict[str, int] | None = None
    graph: dict[str, str] | None = None


@dataclasses.dataclass(frozen=True)
class Served:
    """A SavedModel that is loaded.

    Attributes:
        runners: What a server answers, by signature.
        by_python: What Python answers, by signature.
        contents: Gives the `Contents` of each signature, or the weights alone,
            by whether all of it is wanted.
        input_dtypes: For each signature the dtypes of its inputs.
        more: Functions that Python alone could call, by their paths.
        version: The version of TensorFlow that wrote it.
        seconds: How long a server takes to load it.
    """

    runners: dict[str, Runner]
    by_python: dict[str, Runner]
    contents: Callable[[bool], dict[str, Contents]]
    input_dtypes: dict[str, dict[str, Any]]
    more: list[str]
    version: str
    seconds: float


def load(artifact: str, *op_libraries: str) -> Served:
    """Loads the SavedModel in a folder, in both ways.

    Raises:
        Disagreement: They would not give the same.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    began = time.perf_counter()
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(Path(artifact, "saved_model.pb").read_bytes())
    (meta,) = message.meta_graphs
    if (tags := {*meta.meta_info_def.tags}) != {"serve"}:
        raise ValueError(
            "servers ask for the graph of the tag 'serve', and its tags are "
            f"{', '.join(map(repr, sorted(tags))) or 'none'}"
        )
    library = {f.signature.name: f for f in meta.graph_def.library.function}
    used = {
        node.op
        for nodes in (
            meta.graph_def.node,
            *(function.node_def for function in library.values()),
        )
        for node in nodes
    }
    if any(not hasattr(tf.raw_ops, name) for name in used - library.keys()):
        # TF Serving has TF-Text's operators built in. Importing tensorflow_text
        # needs Keras, so its libraries are loaded by their files.
        for path in op_libraries:
            tf.load_op_library(path)
    calls = _check_agreement(meta)
    _check_loading(meta, library)
    session = _session(meta, Path(artifact))
    seconds = time.perf_counter() - began
    # To optimize these graphs too would take longer than to ask them.
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    module = tf.saved_model.load(artifact)
    functions = dict(module.signatures.items())
    _check_specs(meta, session.graph, functions)
    values = _check_values(session, calls, functions)

    def contents(is_all: bool) -> dict[str, Contents]:
        found = {}
        for name, call in calls.items():
            weights = [
                (tensor, values[tensor])
                for tensor in _captured(call, functions[name])
            ]
            found[name] = Contents(weights)
            if is_all:
                found[name] = Contents(
                    weights,
                    constants([call], library),
                    graph_of(
                        call.attr["f"].func.name,
                        library,
                        _keywords(meta, name),
                        sorted(meta.signature_def[name].outputs),
                    ),
                )
        return found

    return Served(
        runners={
            name: _runner(session, meta.signature_def[name]) for name in calls
        },
        by_python={
            name: _python_runner(module, function)
            for name, function in functions.items()
        },
        contents=contents,
        input_dtypes={
            name: {
                key: tf.dtypes.as_dtype(info.dtype)
                for key, info in meta.signature_def[name].inputs.items()
            }
            for name in calls
        },
        more=sorted(_functions(meta.object_graph_def.nodes)),
        version=meta.meta_info_def.tensorflow_version,
        seconds=seconds,
    )


def _session(meta: Any, folder: Path) -> Any:
    """What `TF_LoadSessionFromSavedModel` makes of a graph."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(meta.graph_def, name="")
    session = tf.compat.v1.Session(
        graph=graph,
        config=tf.compat.v1.ConfigProto(allow_soft_placement=True),
    )
    paths = {
        asset.tensor_info.name: str(folder / "assets" / asset.filename)
        for asset in meta.asset_file_def
    }
    saver = meta.saver_def
    if (folder / "variables" / "variables.index").exists():
        path = str(folder / "variables" / "variables")
        session.run(
            graph.get_operation_by_name(saver.restore_op_name),
            {saver.filename_tensor_name: path, **paths},
        )
    if _INIT in meta.signature_def:
        name = meta.signature_def[_INIT].outputs[_INIT].name
        session.run(graph.as_graph_element(name), paths)
    return session


def _runner(session: Any, signature: Any) -> Runner:
    """What answers a request to a signature, by the names of its tensors."""
    fetches = {key: info.name for key, info in signature.outputs.items()}
    names = {key: info.name for key, info in signature.inputs.items()}

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        if inputs.keys() != names.keys():
            raise ValueError(
                f"its inputs are {', '.join(sorted(names))}, and not "
                f"{', '.join(sorted(inputs))}"
            )
        return session.run(
            fetches, {names[key]: value for key, value in inputs.items()}
        )

    return run


def _python_runner(module: Any, function: Any) -> Runner:
    import tensorflow as tf

    def run(inputs: dict[str, Any], _keep: Any = module) -> dict[str, Any]:
        _, specs = function.structured_input_signature
        results = function(
            **{
                name: tf.cast(tf.constant(value), specs[name].dtype)
                for name, value in inputs.items()
            }
        )
        return {key: value.numpy() for key, value in results.items()}

    return run


def _check_agreement(meta: Any) -> dict[str, Any]:
    """The node that each signature is, which Python runs as a function.

    That function is the same, of the same arguments in the same order, and its
    results are the same outputs. What is left to compare are the values that
    the two have restored: see `_check_values`.
    """
    nodes = {node.name: node for node in meta.graph_def.node}
    objects = meta.object_graph_def.nodes
    by_python = _python_signatures(objects)
    served = {
        name: signature
        for name, signature in meta.signature_def.items()
        if name != _INIT
    }
    if served.keys() != by_python.keys():
        raise Disagreement(
            f"the signatures of servers are {_list(served)}, and those of "
            f"Python {_list(by_python)}"
        )
    calls: dict[str, Any] = {}
    same: dict[str, int] = {}
    inits = {
        name
        for key in ("saved_model_main_op", "legacy_init_op")
        if key in meta.collection_def
        for name in meta.collection_def[key].node_list.value
    }
    if _INIT in meta.signature_def:
        inits.discard(meta.signature_def[_INIT].outputs[_INIT].name)
    if inits:
        raise Disagreement(
            f"servers initialize it by '{_INIT}', and others by {_list(inits)}"
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
            "it has values for inputs that are left out, which only some "
            "servers know",
        )
        outputs = [
            signature.outputs[key].name for key in sorted(signature.outputs)
        ]
        node = nodes.get(outputs[0].partition(":")[0]) if outputs else None
        if node is None:
            raise Disagreement(f"signature '{name}' has no outputs")
        check(
            node.op in _CALLS and node.attr["f"].func.name == called,
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
                (kind == "variable" and op == _VARIABLE)
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


def _check_loading(meta: Any, library: Mapping[str, Any]) -> None:
    """Raises `Disagreement` where it may be loaded otherwise the next time."""
    nodes = {node.name: node for node in meta.graph_def.node}
    names = [meta.saver_def.restore_op_name]
    if _INIT in meta.signature_def:
        names.append(meta.signature_def[_INIT].outputs[_INIT].name)
    remaining = [
        nodes[name] for name in map(_node_name, names) if name in nodes
    ]
    seen, called = {node.name for node in remaining}, set[str]()
    while remaining:
        node = remaining.pop()
        if _draws(node.op):
            raise Disagreement(
                f"servers draw random numbers as they load it ({node.op}), so "
                "that it may be another model each time"
            )
        for name in called_by(node) & library.keys() - called:
            called.add(name)
            remaining.extend(library[name].node_def)
        if node.name in nodes and nodes[node.name] is node:  # of no function
            for name in {*map(_node_name, node.input)} - seen:
                seen.add(name)
                remaining.append(nodes[name])


def _draws(operator: str) -> bool:
    """Whether an operator has a state of its own, as random numbers have."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    return (
        definition is not None
        and definition.is_stateful
        and "seed" in {each.name for each in definition.attr}
        and all(
            each.type != tf.resource.as_datatype_enum
            for each in (*definition.input_arg, *definition.output_arg)
        )
    )


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _python_signatures(objects: Any) -> dict[str, Any]:
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
            raise Disagreement(f"signature '{each.local_name}' is no function")
        found[each.local_name] = node.bare_concrete_function
    return found


def _keywords(meta: Any, name: str) -> list[str]:
    """The inputs of a signature, in the order of its function's arguments."""
    by_python = _python_signatures(meta.object_graph_def.nodes)
    return [*by_python[name].argument_keywords]


def _functions(objects: Any) -> set[str]:
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


def _check_specs(meta: Any, graph: Any, functions: Mapping[str, Any]) -> None:
    """Raises `Disagreement` where shapes or dtypes are told otherwise."""
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
                        f"signature '{name}': shape or dtype of '{key}' is told"
                        " in several ways"
                    )


def _sizes(shape: Any) -> tuple[int | None, ...] | None:
    if shape is None or isinstance(shape, tuple):
        return shape
    return None if shape.rank is None else tuple(shape.as_list())


def _captured(call: Any, function: Any) -> list[str]:
    """The tensors that the node of a signature has beside its inputs."""
    count = len(call.input) - len(function.captured_inputs)
    return [tensor.removesuffix(":0") for tensor in call.input[count:]]


def _check_values(
    session: Any, calls: Mapping[str, Any], functions: Mapping[str, Any]
) -> dict[str, str | None]:
    """The digest of what the functions of signatures read.

    Raises:
        Disagreement: A server and Python have restored different values.
    """
    pairs = {
        tensor: captured
        for name, call in calls.items()
        for tensor, captured in zip(
            _captured(call, functions[name]),
            functions[name].captured_inputs,
            strict=True,
        )
    }
    reads: dict[str, Any] = {}
    found: dict[str, str | None] = {}
    with session.graph.as_default():
        for name in pairs:
            tensor = session.graph.get_tensor_by_name(f"{name}:0")
            reads[name] = _read(tensor, tensor.op)
    for name, value in session.run(
        {name: value for name, value in reads.items() if value is not None}
    ).items():
        operation = session.graph.get_operation_by_name(name)
        found[name] = digest(value)
        if found[name] != digest(_read(pairs[name], operation)):
            raise Disagreement(
                f"servers and Python restore '{name}' with different values"
            )
    return {name: found.get(name) for name in pairs}


def _read(tensor: Any, operation: Any) -> Any:
    """The value behind a tensor, as `read` says; None of unknown resources."""
    import tensorflow as tf

    if tensor.dtype != tf.resource:
        return tensor
    if operation.type == _VARIABLE:
        return read(tensor, operation.get_attr("dtype"))
    if "HashTable" in operation.type:
        return read(
            tensor,
            operation.get_attr("key_dtype"),
            operation.get_attr("value_dtype"),
        )
    return None


def read(handle: Any, dtype: Any, value_dtype: Any = None) -> Any:
    """A variable's value, or a table's keys and values."""
    import tensorflow as tf

    if value_dtype is None:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    return tuple(
        tf.raw_ops.LookupTableExportV2(
            table_handle=handle, Tkeys=dtype, Tvalues=value_dtype
        )
    )


def digest(value: Any) -> str:
    """What an array, or a table's keys and values, is equal by, bit for bit."""
    import numpy as np

    values = value if isinstance(value, tuple) else (value,)
    arrays = [
        np.array(each, dtype=object)  # else it would lose zeros at its end
        if isinstance(each, bytes)
        else np.asarray(each)
        for each in (getattr(v, "numpy", lambda v=v: v)() for v in values)
    ]
    if isinstance(value, tuple) and arrays[0].ndim == 1:
        order = np.argsort(arrays[0], kind="stable")  # tables have none
        arrays = [each[order] for each in arrays]
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape};".encode())
        if array.dtype == object:
            for text in array.flat:
                found.update(b"%d;" % len(text) + text)
        else:
            flat = np.ascontiguousarray(array).reshape(-1)
            found.update(flat.view(np.uint8).data)
    return found.hexdigest()


def constants(
    nodes: Iterable[Any], library: Mapping[str, Any]
) -> dict[str, int]:
    """How often each constant is in nodes, and in the functions they call."""
    known: dict[str, collections.Counter[str]] = {}

    def of_nodes(nodes: Iterable[Any]) -> collections.Counter[str]:
        total: collections.Counter[str] = collections.Counter()
        for node in nodes:
            called = called_by(node) & library.keys()
            if not called:
                total.update(_constants_of(node))
            for name in called:
                if name not in known:
                    known[name] = collections.Counter()  # if it calls itself
                    known[name] = of_nodes(library[name].node_def)
                total.update(known[name])
        return total

    return dict(of_nodes(nodes))


def graph_of(
    name: str,
    library: Mapping[str, Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> dict[str, str]:
    """The digests of a function's outputs; see `Contents`.

    Args:
        name: The function.
        library: It, and those that are called, by name.
        inputs: The names of its first arguments. The others are weights.
        outputs: The names of its results.
    """
    count = len(library[name].signature.input_arg) - len(inputs)
    results, effects = _Bodies(library).of(
        name,
        (
            *(f"input {each}" for each in inputs),
            *(f"weight {i}" for i in range(count)),
        ),
    )
    return {
        **dict(zip(outputs, results, strict=True)),
        "": _hash(*sorted(effects)),
    }


class _Bodies:
    """What functions compute, given what their arguments are."""

    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self._known: dict[Any, tuple[list[str], list[str]]] = {}

    def of(
        self, name: str, arguments: tuple[str, ...]
    ) -> tuple[list[str], list[str]]:
        """Digests of a function's results, and of what else it does."""
        key = name, arguments
        if key not in self._known:
            self._known[key] = self._body(self._library[name], arguments)
        return self._known[key]

    def _body(
        self, function: Any, arguments: tuple[str, ...]
    ) -> tuple[list[str], list[str]]:
        names = [each.name for each in function.signature.input_arg]
        # What is one tensor by itself, or several in their order.
        same = {
            each: [argument]
            for each, argument in zip(names, arguments, strict=True)
        }
        nodes = {node.name: node for node in function.node_def}
        digests: dict[str, str] = {}
        effects = [*_attribute_digests(function.attr, {}, self._function)]

        def tensor(reference: str) -> str:
            name, _, place = reference.partition(":")
            if name in same:
                return same[name][int(place.rpartition(":")[2] or 0)]
            return _hash(digests[name], place)

        # The order of what has effects is left out: it is the same whatever
        # is asked, and so answers tell it.
        order = graphlib.TopologicalSorter(
            {
                name: [
                    each.removeprefix("^").partition(":")[0]
                    for each in node.input
                ]
                for name, node in nodes.items()
            }
        )
        for name in order.static_order():
            if name in names:
                continue
            node = nodes[name]
            given = [tensor(each) for each in node.input if each[0] != "^"]
            if node.op == "Identity":
                same[name] = given
            elif node.op in _CALLS:
                called = node.attr["f"].func.name
                same[name], more = self.of(called, tuple(given))
                effects += more
            else:
                usual, has_effects = _definition(node.op)
                found = _attribute_digests(node.attr, usual, self._function)
                digests[name] = _hash(node.op, *found, "of", *given)
                if has_effects:
                    effects.append(digests[name])
        results = [
            tensor(function.ret[each.name])
            for each in function.signature.output_arg
        ]
        return results, effects

    def _function(self, called: Any) -> str:
        """The digest of a function that a node is given as an attribute."""
        if called.name not in self._library:
            return _hash(called.name)
        arguments = self._library[called.name].signature.input_arg
        results, effects = self.of(
            called.name, tuple(f"argument {i}" for i in range(len(arguments)))
        )
        return _hash(*results, "and", *sorted(effects))


def _attribute_digests(
    attributes: Mapping[str, Any],
    usual: Mapping[str, Any],
    of_function: Callable[[Any], str],
) -> list[str]:
    """Of those that say what is computed, and are not what they usually are."""
    import tensorflow as tf

    found = []
    for name, value in sorted(attributes.items()):
        kind = value.WhichOneof("value")
        if (
            (name.startswith("_") and name not in _KERNELS)
            or name in ("container", "shared_name")
            or value == usual.get(name)
        ):
            continue
        if kind == "tensor":  # there are several ways to write one
            shown = [digest(tf.make_ndarray(value.tensor))]
        elif kind == "func":
            shown = [of_function(value.func)]
        elif kind == "list" and value.list.func:
            shown = [of_function(each) for each in value.list.func]
        else:
            shown = [value.SerializeToString(deterministic=True).hex()]
        found.append(_hash(name, *shown))
    return found


def _definition(operator: str) -> tuple[dict[str, Any], bool]:
    """An operator's default attributes, and whether it does more than give."""
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operator)
    if definition is None:
        return {}, True
    usual = {
        each.name: each.default_value
        for each in definition.attr
        if each.HasField("default_value")
    }
    return usual, definition.is_stateful


def _hash(*parts: str) -> str:
    content = b"".join(b"%d:%s" % (len(p), p.encode()) for p in parts)
    return hashlib.sha256(content).hexdigest()


def called_by(node: Any) -> set[str]:
    """Whatever may be the name of a function that a node calls."""
    names = {node.op}
    for value in node.attr.values():
        names.add(value.func.name)
        names.update(function.name for function in value.list.func)
    return names


def _constants_of(node: Any) -> list[str]:
    """What a node always is, or does: a tensor, or numbers and patterns."""
    import tensorflow as tf

    if node.op == "Const":
        value = tf.make_ndarray(node.attr["value"].tensor)
        shown = value.tolist() if value.size <= 4 else digest(value)
        return [f"{value.dtype} {[*value.shape]} {shown}"]
    usual, _ = _definition(node.op)
    found = []
    for name, value in sorted(node.attr.items()):
        kind = value.WhichOneof("value")
        if kind == "list":
            values = [*value.list.f, *value.list.i, *value.list.b]
            values += value.list.s
        else:
            values = (
                [getattr(value, kind)] if kind in ("f", "i", "b", "s") else []
            )
        if (
            values
            and not name.startswith("_")
            and name not in ("container", "shared_name")
            and value != usual.get(name)
        ):
            found.append(f"{node.op}.{name} {values}")
    return found


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
