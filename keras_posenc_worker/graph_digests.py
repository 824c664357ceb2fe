"""Digests of values, and of what graphs compute, whatever names they use."""

import collections
import dataclasses
import functools
import graphlib
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from keras_posenc_worker.nodes import (
    CALLS,
    draws,
    functions_called,
    node_name,
    reachable,
)

# Attributes that TensorFlow notes for itself, and not alike in every graph.
# Others that begin with "_" say how a node is run.
NOTES = (
    *("_class", "_collective_manager_ids", "_construction_context"),
    *("_gradient_op_type", "_has_manual_control_dependencies"),
    *("_input_shapes", "_num_original_outputs", "_output_shapes"),
    *("_read_only_resource_inputs", "_user_specified_name"),
)

_SHORT = 256  # bytes of an attribute that is worth remembering

# Operators with a state that leave it as it is.
_READERS = (
    *("LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"),
    *("ReadVariableOp", "ResourceGather", "ResourceGatherNd"),
    # The model is an attribute: the state is made of it alone.
    *("SentencepieceOp", "SentencepieceTokenizeOp"),
    *("VarIsInitializedOp", "VariableShape"),
)


def digest(value: Any) -> str:
    """Returns a digest of the bits of an array, or of a table as a pair."""
    import numpy as np

    values = value if isinstance(value, tuple) else (value,)
    arrays = [
        np.array(each, dtype=object)  # else it would lose zeros at its end
        if isinstance(each, bytes)
        else np.asarray(each)  # of a tensor no copy, as `numpy()` makes one
        for each in values
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
            contiguous = np.ascontiguousarray(array).reshape(-1)
            found.update(contiguous.view(np.uint8).data)
    return found.hexdigest()


@dataclasses.dataclass
class Computation:
    """What a function computes.

    Attributes:
        results: A digest of each result: of all operators before it, and their
            connections.
        effects: Digests of side effects, such as assigning a variable, and of
            what they wait for.
        constants: The constants in it, and the numbers and texts among its
            attributes, as text.
        options: Settings of its function calls, such as those of another
            optimizer, as text.
    """

    results: list[str] = dataclasses.field(default_factory=list)
    effects: list[str] = dataclasses.field(default_factory=list)
    constants: set[str] = dataclasses.field(default_factory=set)
    options: set[str] = dataclasses.field(default_factory=set)

    def add(self, inner: "Computation") -> None:
        """Adds all but the results of a function that is called."""
        self.effects += inner.effects
        self.constants |= inner.constants
        self.options |= inner.options

    @property
    def effect(self) -> str:
        """One digest of all effects."""
        return hash_of(*sorted(self.effects))

    def graph(self, outputs: Iterable[str]) -> dict[str, str]:
        """Returns the digests of results by name, and by "" the effect."""
        named = dict(zip(outputs, self.results, strict=True))
        return {**named, "": self.effect}


class GraphDigests:
    """Digests of the functions of a library.

    Names do not matter, nor into which functions a computation is divided.
    """

    def __init__(self, library: Mapping[str, Any]) -> None:
        self._library = library
        self._ambiguous = _names_of_several(library.values())
        self._traits: dict[str, tuple[bool, bool]] = {}
        self._known: dict[Any, Computation] = {}
        self._drawn: collections.Counter[str] = collections.Counter()
        self._is_ordered = False

    def of(self, name: str, arguments: Sequence[str]) -> Computation:
        """Returns what a function computes of arguments with these labels."""
        # What only reads may do so in any order.
        self._is_ordered = self._has(name)[0]
        self._drawn.clear()
        return self._of(name, arguments, frozenset(), True)

    def draws(self, name: str) -> bool:
        """Returns whether a function, or one that it calls, draws at random."""
        return self._has(name)[1]

    def _of(
        self,
        name: str,
        arguments: Sequence[str],
        before: frozenset[str],
        is_held: bool,
    ) -> Computation:
        """Returns what a function computes within another one; see `of`.

        Args:
            name: The function.
            arguments: Digests of its arguments.
            before: Digests of the effects before it.
            is_held: Whether it runs to its end, also if no result is needed.
        """
        if self._has(name)[1]:  # other numbers each time
            return self._body(name, arguments, before, is_held)
        key = name, tuple(arguments), before, is_held, self._is_ordered
        if key not in self._known:
            self._known[key] = self._body(name, arguments, before, is_held)
        return self._known[key]

    def _has(self, name: str) -> tuple[bool, bool]:
        """Returns whether a function changes a state, and whether it draws."""
        if name not in self._library:
            return True, True
        if name not in self._traits:
            self._traits[name] = False, False  # if it calls itself
            writes = is_drawn = False
            for node in self._library[name].node_def:
                called = functions_called(node) & self._library.keys()
                found = [self._has(each) for each in called]
                _, is_stateful = _definition(node.op)
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
    ) -> Computation:
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
        found = Computation()
        found.effects += self._attributes(function.attr, "", found)
        held = _held(function, nodes) if is_held and is_ordered else set[str]()
        # What has happened when a node is done.
        done: dict[str, frozenset[str]] = dict.fromkeys(names, before)

        def tensor(reference: str) -> str:
            name, _, place = reference.partition(":")
            if name in same:
                return same[name][int(place.rpartition(":")[2] or 0)]
            return hash_of(digests[name], place)

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
                inner = self._of(
                    node.attr["f"].func.name,
                    given,
                    done.get(name, frozenset()),
                    name in held or not is_ordered,
                )
                same[name] = inner.results
                found.options |= _options(node)
                found.add(inner)
                if is_ordered and inner.effects:
                    effects = sorted(inner.effects)
                    done[name] = frozenset(
                        [hash_of(*sorted(done[name]), "and", *effects)]
                    )
            else:
                _, has_effects = _definition(node.op)
                parts = self._attributes(
                    _unnamed(node, self._ambiguous), node.op, found
                )
                if node.device:
                    parts.append(hash_of("on", node.device))
                if has_effects and is_ordered:
                    parts += ["after", *sorted(done[name])]
                    parts += ["held"] * (name in held)
                own = hash_of(node.op, *parts, "of", *given)
                if draws(node.op):
                    self._drawn[own] += 1
                    own = hash_of(own, f"{self._drawn[own]}")
                digests[name] = own
                if has_effects:
                    found.effects.append(own)
                    if is_ordered:
                        done[name] = frozenset([own])
        found.results = [
            tensor(function.ret[each.name])
            for each in function.signature.output_arg
        ]
        return found

    def _attributes(
        self, attributes: Mapping[str, Any], operator: str, found: Computation
    ) -> list[str]:
        """Returns digests of attributes that differ from their defaults.

        Args:
            attributes: Those of a node, or of a function.
            operator: The node's operator; "" for a function.
            found: Receives constants among them, and in functions.
        """
        digests = []
        for name, value in sorted(attributes.items()):
            if name in NOTES:
                continue
            kind = value.WhichOneof("value")
            called = [value.func] if kind == "func" else value.list.func
            if not called:
                own, constants = (
                    _short_attribute(
                        operator,
                        name,
                        value.SerializeToString(deterministic=True),
                    )
                    if value.ByteSize() < _SHORT
                    else _attribute(operator, name, value)
                )
                found.constants.update(constants)
                if own is not None:
                    digests.append(own)
            elif value != _definition(operator)[0].get(name):
                shown = [self._function(each, found) for each in called]
                digests.append(hash_of(name, *shown))
        return digests

    def _function(self, called: Any, found: Computation) -> str:
        """Returns the digest of a function that is an attribute of a node."""
        if called.name not in self._library:
            return hash_of(called.name)
        count = len(self._library[called.name].signature.input_arg)
        inner = self._of(
            called.name,
            [f"argument {i}" for i in range(count)],
            frozenset(),
            True,
        )
        found.constants |= inner.constants
        found.options |= inner.options
        return hash_of(*inner.results, "and", *sorted(inner.effects))


def _attribute(
    operator: str, name: str, value: Any
) -> tuple[str | None, set[str]]:
    """Returns the digest of an attribute, or None of a default; its constants.

    It names no function.
    """
    import tensorflow as tf

    kind = value.WhichOneof("value")
    if value == _definition(operator)[0].get(name):
        return None, set()
    if kind == "tensor":  # there are several ways to write one
        array = tf.make_ndarray(value.tensor)
        shown = digest(array)
        short = array.tolist() if array.size <= 4 else shown
        constants = {f"{array.dtype} {[*array.shape]} {short}"}
    else:
        shown = value.SerializeToString(deterministic=True).hex()
        values = value.list if kind == "list" else value
        constants = {
            f"{operator}.{name} {number}"
            for field, number in values.ListFields()
            if field.name in ("f", "i", "b", "s")
        }
    return hash_of(name, shown), constants


@functools.lru_cache(2**12)
def _short_attribute(
    operator: str, name: str, content: bytes
) -> tuple[str | None, set[str]]:
    """Returns the same of a serialized attribute: most occur many times."""
    from tensorflow.core.framework import attr_value_pb2

    value = attr_value_pb2.AttrValue.FromString(content)
    return _attribute(operator, name, value)


@functools.cache
def _definition(operator: str) -> tuple[dict[str, Any], bool]:
    """Returns an operator's default attributes; whether it has side effects."""
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


def _unnamed(node: Any, ambiguous: Collection[bytes]) -> dict[str, Any]:
    """Returns attributes without the name that Python gives to a resource.

    When it loads a function, it names a SentencePiece model after its node.
    Models of one name are one model, the first: such names are kept.
    """
    attributes = dict(node.attr)
    if node.op == "SentencepieceOp":
        name = _plain_name(node)
        if name == node.name.encode() and name not in ambiguous:
            attributes.pop("shared_name", None)
    return attributes


def _names_of_several(functions: Iterable[Any]) -> set[bytes]:
    """Returns the names that several SentencePiece models have."""
    models: dict[bytes, set[bytes]] = collections.defaultdict(set)
    for function in functions:
        for node in function.node_def:
            if node.op == "SentencepieceOp":
                models[_plain_name(node)].add(
                    node.attr["model"].s if "model" in node.attr else b""
                )
    return {name for name, of_it in models.items() if len(of_it) > 1}


def _plain_name(node: Any) -> bytes:
    """Returns the name of a node's resource, before Python changed it."""
    name = node.attr["shared_name"].s if "shared_name" in node.attr else b""
    return re.sub(rb"_load_\d+\Z", b"", name) or node.name.encode()


def _held(function: Any, nodes: Mapping[str, Any]) -> set[str]:
    """Returns the nodes that a function waits for before it ends."""
    ends = [*function.control_ret.values(), *function.ret.values()]
    return {node.name for node in reachable(nodes, ends)}


def _options(call: Any) -> set[str]:
    """Returns the further settings of a function call, as text."""
    found = {
        f"{key} {value}"
        for key, value in call.attr.items()
        if key not in ("Tin", "Tout", "f", "config_proto", *NOTES)
        and (value.s or value.WhichOneof("value") != "s")
    }
    if call.device:
        found.add(f"on {call.device}")
    return found | call_options(call.attr["config_proto"].s)


def call_options(config: bytes) -> set[str]:
    """Returns settings of a `ConfigProto` that may change outputs, as text."""
    from tensorflow.core.protobuf import config_pb2

    options = config_pb2.ConfigProto.FromString(config).graph_options
    if not options.rewrite_options.ByteSize():  # as if none was set
        options.ClearField("rewrite_options")
    return {" ".join(str(options).split())} if options.ByteSize() else set()


def hash_of(*parts: str) -> str:
    """Returns a digest of texts, which no other texts have."""
    content = b"".join(b"%d:%s" % (len(p), p.encode()) for p in parts)
    return hashlib.sha256(content).hexdigest()
