"""Digests of what a graph's outputs are computed from, and how."""

import collections
import graphlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras_posenc_worker.contents import definition_of, digest
from keras_posenc_worker.nodes import CALLS, draws, functions_called, node_name

# Of the attributes that begin so, those that TensorFlow notes for itself, and
# not in each graph alike. The others say how a node is run.
_NOTES = (
    *("_class", "_collective_manager_ids", "_construction_context"),
    *("_gradient_op_type", "_has_manual_control_dependencies"),
    *("_input_shapes", "_num_original_outputs", "_output_shapes"),
    *("_read_only_resource_inputs", "_user_specified_name"),
)

# What has a state, and leaves it as it is.
_READERS = (
    *("LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"),
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
    *("VarIsInitializedOp", "VariableShape"),
)


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
    results, effects = _Bodies(library, name).of(
        name,
        [
            *(f"input {each}" for each in inputs),
            *(f"weight {i}" for i in range(count)),
        ],
    )
    return {
        **dict(zip(outputs, results, strict=True)),
        "": _hash(*sorted(effects)),
    }


class _Bodies:
    """What functions compute, given what their arguments are."""

    def __init__(self, library: Mapping[str, Any], top: str) -> None:
        self._library = library
        self._traits: dict[str, tuple[bool, bool]] = {}
        self._known: dict[Any, tuple[list[str], list[str]]] = {}
        self._drawn: collections.Counter[str] = collections.Counter()
        # What only reads may do so in any order.
        self._is_ordered = self._has(top)[0]

    def of(
        self,
        name: str,
        arguments: Sequence[str],
        before: frozenset[str] = frozenset(),
        is_held: bool = True,
    ) -> tuple[list[str], list[str]]:
        """Digests of a function's results, and of what else it does.

        Args:
            name: The function.
            arguments: Digests of its arguments.
            before: Those of what has happened before it begins.
            is_held: Whether it is run to its end, whatever is asked of it.
        """
        if self._has(name)[1]:  # other numbers each time
            return self._body(name, arguments, before, is_held)
        key = name, tuple(arguments), before, is_held
        if key not in self._known:
            self._known[key] = self._body(name, arguments, before, is_held)
        return self._known[key]

    def _has(self, name: str) -> tuple[bool, bool]:
        """Whether a function changes a state, and whether it draws numbers."""
        if name not in self._library:
            return True, True
        if name not in self._traits:
            self._traits[name] = False, False  # if it calls itself
            writes = is_drawn = False
            for node in self._library[name].node_def:
                called = functions_called(node) & self._library.keys()
                found = [self._has(each) for each in called]
                _, is_stateful = definition_of(node.op)
                if not called and is_stateful and node.op not in _READERS:
                    found.append((not draws(node.op), draws(node.op)))
                writes = writes or any(each for each, _ in found)
                is_drawn = is_drawn or any(each for _, each in found)
            self._traits[name] = writes, is_drawn
        return self._traits[name]

    def _body(
        self,
        name: str,
        arguments: Sequence[str],
        before: frozenset[str],
        is_held: bool,
    ) -> tuple[list[str], list[str]]:
        function = self._library[name]
        is_ordered = self._is_ordered
        names = [each.name for each in function.signature.input_arg]
        # What is one tensor by itself, or several in their order.
        same = {
            each: [argument]
            for each, argument in zip(names, arguments, strict=True)
        }
        nodes = {node.name: node for node in function.node_def}
        digests: dict[str, str] = {}
        effects = [*_attribute_digests(function.attr, {}, self._function)]
        held = _held(function, nodes) if is_held and is_ordered else set[str]()
        # What has happened when a node is done.
        done: dict[str, frozenset[str]] = dict.fromkeys(names, before)

        def tensor(reference: str) -> str:
            name, _, place = reference.partition(":")
            if name in same:
                return same[name][int(place.rpartition(":")[2] or 0)]
            return _hash(digests[name], place)

        order = graphlib.TopologicalSorter(
            {
                name: [node_name(each) for each in node.input]
                for name, node in nodes.items()
            }
        )
        for name in order.static_order():
            if name in names:
                continue
            node = nodes[name]
            given = [tensor(each) for each in node.input if each[0] != "^"]
            if is_ordered:
                done[name] = before.union(
                    *(done[node_name(each)] for each in node.input)
                )
            if node.op == "Identity":
                same[name] = given
            elif node.op in CALLS:
                same[name], more = self.of(
                    node.attr["f"].func.name,
                    given,
                    done.get(name, frozenset()),
                    name in held or not is_ordered,
                )
                effects += more
                if is_ordered and more:
                    done[name] = frozenset(
                        [_hash(*sorted(done[name]), "and", *sorted(more))]
                    )
            else:
                usual, has_effects = definition_of(node.op)
                found = _attribute_digests(node.attr, usual, self._function)
                if node.device:
                    found.append(_hash("on", node.device))
                if has_effects and is_ordered:
                    found += ["after", *sorted(done[name])]
                    found += ["held"] * (name in held)
                own = _hash(node.op, *found, "of", *given)
                if draws(node.op):
                    self._drawn[own] += 1
                    own = _hash(own, f"{self._drawn[own]}")
                digests[name] = own
                if has_effects:
                    effects.append(own)
                    if is_ordered:
                        done[name] = frozenset([own])
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
            called.name, [f"argument {i}" for i in range(len(arguments))]
        )
        return _hash(*results, "and", *sorted(effects))


def _held(function: Any, nodes: Mapping[str, Any]) -> set[str]:
    """The nodes that a function waits for before it ends."""
    remaining = [*function.control_ret.values(), *function.ret.values()]
    held: set[str] = set()
    while remaining:
        name = node_name(remaining.pop())
        if name in nodes and name not in held:
            held.add(name)
            remaining.extend(nodes[name].input)
    return held


def calls_of(nodes: Iterable[Any], library: Mapping[str, Any]) -> list[str]:
    """How nodes, and the functions that they call, call functions."""
    found: set[str] = set()
    remaining, seen = [*nodes], set[str]()
    while remaining:
        node = remaining.pop()
        called = (functions_called(node) & library.keys()) - seen
        seen |= called
        for name in called:
            remaining.extend(library[name].node_def)
        if node.op in CALLS:
            attributes = {
                key: value
                for key, value in node.attr.items()
                if key not in ("Tin", "Tout", "f", "config_proto")
                and key not in _NOTES
                and (value.s or value.WhichOneof("value") != "s")
            }
            if node.device:
                found.add(f"on {node.device}")
            found.update(f"{key} {value}" for key, value in attributes.items())
            found.update(call_options(node.attr["config_proto"].s))
    return sorted(found)


def call_options(config: bytes) -> list[str]:
    """What of a configuration may change what is computed, in words."""
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.ConfigProto.FromString(config).graph_options
    if not options.rewrite_options.ByteSize():  # as where nobody set any
        options.ClearField("rewrite_options")
    return [" ".join(str(options).split())] if options.ByteSize() else []


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
        if name in _NOTES or value == usual.get(name):
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


def _hash(*parts: str) -> str:
    content = b"".join(b"%d:%s" % (len(p), p.encode()) for p in parts)
    return hashlib.sha256(content).hexdigest()
