"""The contents of a SavedModel's signatures, for servers and for Python.

Servers run what `signature_def` names in the graph; Python calls functions of
the object graph. `Reader` describes both, and the functions that a model was
traced to, in the same way, so that one comparison shows whether they are equal.
"""

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from keras_posenc_worker.graph_digests import (
    Computation,
    GraphDigests,
    digest,
    hash_of,
)
from keras_posenc_worker.nodes import (
    CALLS,
    INIT,
    functions_called,
    makes_resource,
    node_name,
    reachable,
)

DEFAULT, SERVE = "serving_default", "serve"
UNNAMED = "a constant without a name"  # one that functions capture

_PREDICT = "tensorflow/serving/predict"

# What Python calls as it loads a table or its like.
_LOADING = ("_create_resource", "_initialize", "_destroy_resource")

# What the path of an asset may go into while a file is loaded: operators that
# pass it on, and operators that read the asset.
_PASS = ("AssignVariableOp", "Identity", "ReadVariableOp", "VarIsInitializedOp")
_READ = (
    *("InitializeTableFromTextFile", "InitializeTableFromTextFileV2"),
    "ReadFile",
)

# Attributes that say where a state is kept: Python's reader changes them.
_SHARING = ("container", "shared_name", "use_node_name_sharing")


class Disagreement(Exception):
    """Servers and Python would load different models; the message says how."""


@dataclasses.dataclass(frozen=True, eq=False)
class Weight:
    """A variable, a table or a tensor outside of the functions.

    Attributes:
        name: Its name in messages.
        kind: Its operator; of a table or its like with all attributes.
        value: Its tensor; of a table keys and values. None if unknown.
    """

    name: str
    kind: str
    value: Any

    def digest(self) -> str | None:
        """Returns a digest of the value, or None if it is unknown."""
        return None if self.value is None else digest(self.value)


def weight_of(name: str, tensor: Any, node: Any) -> Weight:
    """Returns a weight, whose value is read at once or, in a graph, when run.

    Args:
        name: Its name in messages.
        tensor: The value, or the handle of a variable or a table.
        node: The node that makes it.
    """
    import tensorflow as tf

    dtypes, ops = node.attr, tf.raw_ops
    if tensor.dtype != tf.resource:
        return Weight(name, node.op, tensor)
    if node.op == "VarHandleOp":
        value = ops.ReadVariableOp(resource=tensor, dtype=dtypes["dtype"].type)
        return Weight(name, node.op, value)
    value = None
    if "HashTable" in node.op:
        value = tuple(
            ops.LookupTableExportV2(
                table_handle=tensor,
                Tkeys=dtypes["key_dtype"].type,
                Tvalues=dtypes["value_dtype"].type,
            )
        )
    attributes = [
        f"{key} {value.SerializeToString(deterministic=True).hex()}"
        for key, value in sorted(node.attr.items())
        if key[0] != "_" and key not in _SHARING
    ]
    return Weight(name, hash_of(node.op, *attributes), value)


@dataclasses.dataclass(frozen=True)
class Signature:
    """The contents of a signature.

    Attributes:
        arguments: The names of its inputs, in the structure that it takes.
        results: The digests of its outputs, in the structure that it returns.
        specs: Dtypes and shapes of inputs and outputs, as text.
        computation: What it computes.
        weights: What it reads, in the order of use.
    """

    arguments: Any
    results: Any
    specs: list[str]
    computation: Computation
    weights: list[Weight]

    def contents(self, digests: Mapping[Weight, str | None]) -> dict[str, Any]:
        """Returns what is compared with a model, given the weights' digests.

        Returns:
            A dict of `weights`, pairs of a name and a digest; `graph`, the
            digest of each output by name, and by "" that of the effects;
            `constants` and `options`, as in `Computation`.
        """
        return {
            "weights": [(each.name, digests[each]) for each in self.weights],
            "graph": {**self.results, "": self.computation.effect},
            "constants": sorted(self.computation.constants),
            "options": sorted(self.computation.options),
        }


class Reader:
    """Describes the signatures of one process, or of one graph.

    Args:
        tables: What functions may read besides variables and tensors, by the
            `id` of its handle.
        constants: The names of tensors that functions capture, by their `id`.
    """

    def __init__(
        self,
        tables: Mapping[int, Weight] | None = None,
        constants: Mapping[int, str] | None = None,
    ) -> None:
        self._tables = tables or {}
        self._constants = constants or {}
        self._library: dict[str, Any] = {}
        self._digests = GraphDigests(self._library)
        self._weights: dict[Hashable, Weight] = {}

    def of_function(self, function: Any) -> Signature:
        """Describes a concrete function of this process."""
        import tensorflow as tf
        from tensorflow.python.framework.func_graph import FuncGraph

        flatten = tf.nest.flatten
        structure = function.structured_input_signature
        # Several fields of a file say which argument an input becomes: so
        # TensorFlow calls the function here, and nothing runs.
        with FuncGraph("call").as_default() as graph:
            given = tf.nest.map_structure(
                lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape),
                structure,
            )
            returned = function(*given[0], **given[1])
        inputs = [*zip(flatten(given), flatten(structure), strict=True)]
        captured = {inner.op.name: outer for outer, inner in graph.captures}
        variables = {id(each.handle): each for each in function.variables}

        def weight(node: Any) -> Weight | None:
            if node.name not in captured:
                return None
            tensor = captured[node.name]
            key = id(tensor)
            if key in variables:
                value = variables[key].value()
                found = Weight(variables[key].name, "VarHandleOp", value)
            elif tensor.dtype == tf.resource:
                unknown = Weight("a resource", "", None)
                found = self._tables.get(key, unknown)
            else:
                name = self._constants.get(key, UNNAMED)
                found = Weight(name, "Const", tensor)
            return self._weights.setdefault(key, found)

        computation, weights = self._describe(
            graph.as_graph_def(),
            {tensor.op.name: spec.name for tensor, spec in inputs},
            [tensor.name for tensor in flatten(returned)],
            weight,
        )
        return Signature(
            tf.nest.map_structure(lambda spec: spec.name, structure),
            tf.nest.pack_sequence_as(returned, computation.results),
            [
                *(f"{x.name} {_spec(x.dtype, x.shape)}" for _, x in inputs),
                *(
                    _spec(x.dtype, x.shape)
                    for x in flatten(function.structured_outputs)
                ),
                *(function._arg_keywords or ()),  # where the structure fails
            ],
            computation,
            weights,
        )

    def of_servers(self, meta: Any, graph: Any, name: str) -> Signature:
        """Describes a signature as servers run it.

        Args:
            meta: A SavedModel's `MetaGraphDef`.
            graph: Its imported graph.
            name: The signature.

        Raises:
            Disagreement: Not all servers run it in the same way.
        """
        signature = meta.signature_def[name]
        if signature.method_name != _PREDICT:
            raise Disagreement(
                f"signature '{name}': its method is "
                f"'{signature.method_name}', and servers run '{_PREDICT}'"
            )
        if signature.defaults:
            raise Disagreement(
                f"signature '{name}': it has default values for inputs, which "
                "only some servers apply"
            )

        def weight(node: Any) -> Weight | None:
            if node.op != "Const" and not makes_resource(node.op):
                return None
            tensor = graph.get_tensor_by_name(f"{node.name}:0")
            node = tensor.op.node_def  # with all attributes
            shared_name = node.attr["shared_name"].s.decode() or node.name
            key = node.attr["container"].s, shared_name
            if key not in self._weights:
                self._weights[key] = weight_of(node.name, tensor, node)
            return self._weights[key]

        inputs, outputs = (
            dict(sorted(infos.items()))
            for infos in (signature.inputs, signature.outputs)
        )
        with graph.as_default():
            computation, weights = self._describe(
                meta.graph_def,
                {node_name(info.name): key for key, info in inputs.items()},
                [info.name for info in outputs.values()],
                weight,
            )
        specs = []
        for key, info in inputs.items():
            tensor = graph.get_tensor_by_name(info.name)
            found = {
                _spec(info.dtype, info.tensor_shape),
                _spec(tensor.dtype, tensor.shape),
            }
            specs.append(" ".join([key, *sorted(found)]))
        specs += [_spec(x.dtype, x.tensor_shape) for x in outputs.values()]
        specs += inputs  # in the order of a function's arguments
        return Signature(
            ((), {key: key for key in inputs}),
            dict(zip(outputs, computation.results, strict=True)),
            specs,
            computation,
            weights,
        )

    def _describe(
        self,
        graph: Any,
        inputs: Mapping[str, str],
        outputs: Iterable[str],
        weight: Callable[[Any], Weight | None],
    ) -> tuple[Computation, list[Weight]]:
        """Returns what tensors of a `GraphDef` compute, and their weights.

        Args:
            graph: The graph.
            inputs: The inputs by the names of their placeholders.
            outputs: The names of the tensors.
            weight: Returns the value of a node without inputs, if it is a
                weight.
        """
        labels, weights, inner = {}, dict[Weight, str](), []
        nodes = {node.name: node for node in graph.node}
        for node in reachable(nodes, outputs):
            if node.input:
                inner.append(node)
            elif node.op == "Placeholder" and node.name in inputs:
                labels[node.name] = f"input {inputs[node.name]}"
            elif (found := weight(node)) is not None:
                label = weights.setdefault(found, f"weight {len(weights)}")
                labels[node.name] = label
            else:
                inner.append(node)
        name = self._add(graph, inner, labels, outputs)
        return self._digests.of(name, [*labels.values()]), [*weights]

    def draws(
        self, graph: Any, tensors: Iterable[str], functions: Iterable[str]
    ) -> bool:
        """Returns whether tensors or functions of a graph draw at random."""
        nodes = {node.name: node for node in graph.node}
        own = self._add(graph, reachable(nodes, tensors))
        return any(map(self._digests.draws, [own, *functions]))

    @staticmethod
    def reaches_variables(graph: Any, tensors: Iterable[str]) -> bool:
        """Returns whether what makes tensors of a graph has to do with one.

        One of strings is left out: TensorFlow assigns the path of an asset to
        such a variable.
        """
        import tensorflow as tf

        string = tf.string.as_datatype_enum
        library = {x.signature.name: x for x in graph.library.function}
        nodes = {node.name: node for node in graph.node}
        remaining, seen = [*reachable(nodes, tensors)], set[str]()
        while remaining:
            node = remaining.pop()
            if node.op == "VarHandleOp" and node.attr["dtype"].type != string:
                return True
            called = (functions_called(node) & library.keys()) - seen
            seen |= called
            for name in called:
                remaining.extend(library[name].node_def)
        return False

    def _add(
        self,
        graph: Any,
        nodes: Iterable[Any],
        arguments: Iterable[str] = (),
        results: Iterable[str] = (),
    ) -> str:
        """Adds nodes of a graph as a function, and returns its name."""
        from tensorflow.core.framework import function_pb2

        library = graph.library.function
        self._library.update({x.signature.name: x for x in library})
        function = function_pb2.FunctionDef()
        function.node_def.extend(nodes)
        for name in arguments:
            function.signature.input_arg.add(name=name)
        for index, tensor in enumerate(results):
            function.signature.output_arg.add(name=f"{index}")
            function.ret[f"{index}"] = tensor
        name = max(self._library, default="") + "'"  # no other function's
        self._library[name] = function
        return name


def check_loading(meta: Any) -> None:
    """Raises `Disagreement` where a graph may load as another model next time.

    Also where some servers initialize it otherwise than others.
    """
    collections, signatures = meta.collection_def, meta.signature_def
    names = [signatures[INIT].outputs[INIT].name] if INIT in signatures else []
    for key in ("saved_model_main_op", "legacy_init_op"):
        found = collections[key].node_list.value if key in collections else ()
        if more := {*found} - {*names}:
            raise Disagreement(
                f"servers initialize it by '{INIT}', and others by "
                f"{_list(more)}"
            )
    if Reader.reaches_variables(meta.graph_def, names):
        raise Disagreement(
            "servers read or change variables as they initialize it, and so "
            "after their values were restored"
        )
    handles = [
        (node.attr["container"].s, node.attr["shared_name"].s or node.name)
        for node in meta.graph_def.node
        if node.op == "VarHandleOp"
    ]
    if len({*handles}) < len(handles):
        raise Disagreement(
            "servers have one variable twice, so that it would depend on "
            "chance which of two values is restored"
        )
    objects = meta.object_graph_def.nodes
    by_python = [
        function
        for resource in objects
        if resource.WhichOneof("kind") == "resource"
        for child in resource.children
        if child.local_name in _LOADING
        for function in objects[child.node_id].function.concrete_functions
    ]
    loading = [*names, meta.saver_def.restore_op_name]
    if Reader().draws(meta.graph_def, loading, by_python):
        raise Disagreement(
            "random numbers are drawn as it is loaded, so that it may be "
            "another model each time"
        )
    if operator := _computes_with_paths(meta, names, by_python):
        raise Disagreement(
            f"as it is loaded, {operator} computes with the path of an asset, "
            "so that it may be another model in another folder"
        )


def _computes_with_paths(
    meta: Any, names: Iterable[str], by_python: Iterable[str]
) -> str | None:
    """Returns an operator that does more with an asset's path than to read it.

    Args:
        meta: A SavedModel's `MetaGraphDef`.
        names: What servers run to initialize it.
        by_python: The functions that Python calls.
    """
    import tensorflow as tf

    library = {x.signature.name: x for x in meta.graph_def.library.function}
    nodes = {node.name: node for node in meta.graph_def.node}
    bodies = {"": [*reachable(nodes, names)]}
    called = {*by_python}
    for node in bodies[""]:
        called |= functions_called(node) & library.keys()
    while called - bodies.keys():
        name = min(called - bodies.keys())
        bodies[name] = library[name].node_def
        for node in bodies[name]:
            called |= functions_called(node) & library.keys()
    # A loader feeds the paths, and variables of strings hold them.
    string = tf.string.as_datatype_enum
    fed = {node_name(each.tensor_info.name) for each in meta.asset_file_def}
    remaining = [
        (scope, node.name)
        for scope, body in bodies.items()
        for node in body
        if (not scope and node.name in fed)
        or (node.op == "VarHandleOp" and node.attr["dtype"].type == string)
    ]
    objects = meta.object_graph_def
    for name in by_python:
        arguments = library[name].signature.input_arg
        bound = objects.concrete_functions[name].bound_inputs
        first = len(arguments) - len(bound)  # the last arguments are bound
        remaining += [
            (name, argument.name)
            for argument, index in zip(arguments[first:], bound, strict=True)
            if objects.nodes[index].WhichOneof("kind") == "asset"
            or objects.nodes[index].variable.dtype == string
        ]
    readers = collections.defaultdict(list)
    callers = collections.defaultdict(list)
    branching = collections.defaultdict(set)  # such as If and While
    for scope, body in bodies.items():
        for node in body:
            if node.op in CALLS:
                callers[node.attr["f"].func.name].append((scope, node.name))
            else:
                for function in functions_called(node) & library.keys():
                    branching[function].add(node.op)
            for place, tensor in enumerate(node.input):
                if not tensor.startswith("^"):
                    readers[scope, node_name(tensor)].append((node, place))
    seen = set()
    while remaining:
        scope, name = remaining.pop()
        if (scope, name) in seen:
            continue
        seen.add((scope, name))
        if scope and name in map(node_name, library[scope].ret.values()):
            if branching[scope]:
                return str(min(branching[scope]))
            remaining += callers[scope]
        for node, place in readers[scope, name]:
            if node.op in CALLS:
                function = node.attr["f"].func.name
                argument = library[function].signature.input_arg[place]
                remaining.append((function, argument.name))
            elif node.op in _PASS:
                remaining.append((scope, node.name))
            elif node.op not in _READ:
                return str(node.op)
    return None


def tables_of(module: Any) -> dict[int, Weight]:
    """Returns a loaded module's tables and their like, by `id` of a handle."""
    import tensorflow as tf

    found = {}
    for each in tf.train.TrackableView(module).descendants():
        if isinstance(each, tf.saved_model.experimental.TrackableResource):
            makers = [
                operation
                for function in each._create_resource.concrete_functions
                for operation in function.graph.get_operations()
                if makes_resource(operation.type)
            ]
            if len(makers) == 1:
                handle = each.resource_handle
                found[id(handle)] = weight_of("", handle, makers[0].node_def)
    return found


def check_same(
    servers: Mapping[str, Signature], python: Mapping[str, Signature]
) -> list[tuple[Weight, Weight]]:
    """Compares what servers run with what Python runs.

    Returns:
        The weights whose values must be equal: of servers, and of Python.

    Raises:
        Disagreement: They differ.
    """
    if servers.keys() != python.keys():
        raise Disagreement(
            f"servers see the signatures {_list(servers)}, and Python "
            f"{_list(python)}"
        )
    pairs: dict[tuple[Weight, Weight], None] = {}
    for name, one in servers.items():
        two = python[name]
        pairs.update(dict.fromkeys(zip(one.weights, two.weights, strict=False)))
        sides = [{*each} for each in zip(*pairs, strict=True)]
        wrong = differences(
            *(
                {
                    "arguments": each.arguments,
                    "shapes, dtypes or order": each.specs,
                    "weights": [weight.kind for weight in each.weights],
                    "side effects": each.computation.effect,
                    **{f"output {key}": x for key, x in each.results.items()},
                }
                for each in (one, two)
            )
        )
        if any(len(side) < len(pairs) for side in sides):
            wrong.append("weights")
        if wrong:
            raise Disagreement(f"signature '{name}': {_list(wrong)}")
    return [*pairs]


def differences(own: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """Returns the keys whose values differ."""
    keys = sorted(own.keys() | others.keys())
    return [key for key in keys if own.get(key) != others.get(key)]


def describe_serve(
    module: Any, python: Mapping[str, Signature], reader: Reader
) -> dict[str, Any] | None:
    """Describes `serve`, the function by which Python calls Keras's exports.

    Args:
        module: A loaded SavedModel.
        python: Its signatures.
        reader: The reader that described them.

    Returns:
        Its `arguments` and `results`, as in a `Signature`. None if there is no
        such function, or no `serving_default`.

    Raises:
        Disagreement: It computes something else than `serving_default`.
    """
    import tensorflow as tf

    functions = getattr(
        getattr(module, SERVE, None), "concrete_functions", None
    )
    if functions is None or DEFAULT not in python:
        return None
    if len(functions) == 1:
        default = python[DEFAULT]
        found = reader.of_function(functions[0])
        if (
            {*tf.nest.flatten(found.results)} <= {*default.results.values()}
            and found.computation.effect == default.computation.effect
            and found.weights == default.weights
        ):
            return {"arguments": found.arguments, "results": found.results}
    raise Disagreement(
        f"'{SERVE}', which Python calls, computes something else than "
        f"'{DEFAULT}', which servers run"
    )


def python_functions(objects: Any, has_serve: bool) -> list[str]:
    """Returns the paths of functions that only Python could call.

    Args:
        objects: The objects of a SavedModel.
        has_serve: Whether `serve` is as `describe_serve` says.
    """
    root = {child.local_name: child.node_id for child in objects[0].children}
    known = _functions(objects[root[SERVE]]) if has_serve else []
    found, seen, remaining = [], {0}, [("", 0)]
    while remaining:
        parent, index = remaining.pop()
        is_resource = objects[index].WhichOneof("kind") == "resource"
        for child in objects[index].children:
            path = f"{parent}{child.local_name}"
            is_loader = is_resource and child.local_name in _LOADING
            if child.node_id in seen or is_loader or path == "signatures":
                continue
            seen.add(child.node_id)
            remaining.append((f"{path}.", child.node_id))
            functions = _functions(objects[child.node_id])
            is_serve = path.partition(".")[0] == SERVE and functions == known
            if functions and not is_serve:
                found.append(path)
    return sorted(found)


def _functions(node: Any) -> list[str]:
    """Returns the functions that Python calls by an object of a SavedModel."""
    if node.WhichOneof("kind") == "bare_concrete_function":
        return [node.bare_concrete_function.concrete_function_name]
    return [*node.function.concrete_functions]


def _spec(dtype: Any, shape: Any) -> str:
    import tensorflow as tf

    return f"{tf.dtypes.as_dtype(dtype).name} {tf.TensorShape(shape)}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
