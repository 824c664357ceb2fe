"""What an artifact is made of, beside what its model is made of.

Answers are samples: a weight that no question reaches may have any value. So
weights, constants, and what is computed from them are compared too, bit for
bit.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within
from keras_posenc_worker.contents import (
    Contents,
    constants,
    digest,
    read,
)
from keras_posenc_worker.graph_digests import (
    call_options,
    calls_of,
    graph_of,
)

_SHOWN = 3  # constants, or weights, of one signature


def tables_of(signatures: Sequence[Signature]) -> list[Any]:
    """Lookup tables and their like that are attributes of layers."""
    import tensorflow as tf

    resource = tf.saved_model.experimental.TrackableResource
    return list(
        {
            id(value): value
            for signature in signatures
            for layer in layers_within(signature.model)
            for value in vars(layer).values()
            if isinstance(value, resource)
        }.values()
    )


def contents_of(
    signatures: Sequence[Signature],
    functions: Mapping[str, Any],
    is_all: bool = True,
) -> dict[str, Contents]:
    """The model's own contents, by signature.

    Args:
        signatures: The signatures.
        functions: Their graph functions, by name.
        is_all: Whether more than the weights, as in a file that these functions
            were not written to just now.
    """
    import tensorflow as tf

    tables = {
        id(table.resource_handle): table
        for table in tables_of(signatures)
        if hasattr(table, "key_dtype")
    }
    known: dict[int, tuple[str, str | None]] = {}

    def weight(tensor: Any, variables: Mapping[int, Any]) -> Any:
        key = id(tensor)
        if key in known:
            return known[key]
        if tensor.dtype != tf.resource:
            return "a tensor of its own", digest(tensor)
        if key in variables:
            variable = variables[key]
            found: tuple[str, str | None] = (
                variable.name,
                digest(read(tensor, variable.dtype)),
            )
        elif key in tables:
            table = tables[key]
            value = read(tensor, table.key_dtype, table.value_dtype)
            found = "a lookup table", digest(value)
        else:
            found = "a resource", None
        return known.setdefault(key, found)

    contents = {}
    for name, function in functions.items():
        variables = {id(each.handle): each for each in function.variables}
        weights = [weight(each, variables) for each in function.captured_inputs]
        contents[name] = Contents(weights)
        if not is_all:
            continue
        library = {
            each.signature.name: each
            for each in function.graph.as_graph_def().library.function
        }
        definition = function.function_def
        own = definition.signature.name
        contents[name] = Contents(
            weights,
            constants(definition.node_def, library),
            graph_of(
                own,
                {**library, own: definition},
                [
                    each.op.get_attr("_user_specified_name").decode()
                    for each in function.inputs[
                        : len(function.inputs) - len(function.captured_inputs)
                    ]
                ],
                sorted(function.structured_outputs),
            ),
            _own_calls(definition, library),
        )
    return contents


def _own_calls(function: Any, library: Mapping[str, Any]) -> list[str]:
    """How functions are called in this process, from others too."""
    from tensorflow.python.eager import context

    return [
        *calls_of(function.node_def, library),
        *call_options(
            context.context().function_call_options.config_proto_serialized
        ),
    ]


def compare_contents(
    wanted: Mapping[str, Contents],
    found: Mapping[str, Mapping[str, Any]],
    more_outputs: Collection[str] = (),
) -> tuple[list[str], list[str], list[str]]:
    """What of an artifact is not the model's.

    Args:
        wanted: The model's contents, by signature.
        found: The artifact's, as dicts.
        more_outputs: Signatures that have outputs which nobody asked for, and
            so constants of which nothing is known.

    Returns:
        The weights that are not the model's; what of the graph is not as this
        TensorFlow traces it; and what could not be compared.
    """
    altered: list[str] = []
    rewritten: list[str] = []
    folded: list[str] = []
    for name, own in wanted.items():
        others = found[name]["weights"]
        wrong = _weights(own.weights, others)
        if wrong is not None:
            (rewritten if wrong == _ORDER else altered).append(
                f"{name}: {wrong}"
            )
        if any(value is None for _, value in others):
            folded.append(f"{name}: resources other than lookup tables")
        if own.constants is None or own.graph is None:
            continue
        wrong = _constants(own.constants, found[name]["constants"])
        if name in more_outputs:
            # There are more constants then; what each of the others is computed
            # of, its graph says.
            wrong = None
        wrong = wrong or _graph(own.graph, found[name]["graph"])
        if wrong is None and (more := {*found[name]["calls"]} - {*own.calls}):
            wrong = f"it calls other functions, with {', '.join(sorted(more))}"
        if wrong is not None:
            rewritten.append(f"{name}: {wrong}")
    return altered, rewritten, folded


_ORDER = "its weights are the model's, in another order"


def _weights(
    own: Sequence[tuple[str, str | None]],
    others: Sequence[Sequence[str | None]],
) -> str | None:
    """How weights, in the order of their use, are not the model's."""
    if len(own) != len(others):
        return f"it reads {len(others)} weights, and the model {len(own)}"
    pairs = [
        (name, value, other)
        for (name, value), (_, other) in zip(own, others, strict=True)
        if value is not None and other is not None
    ]
    if collections.Counter(
        value for _, value, _ in pairs
    ) == collections.Counter(other for *_, other in pairs):
        is_same = all(value == other for _, value, other in pairs)
        return None if is_same else _ORDER
    wrong = [name for name, value, other in pairs if value != other]
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return f"different values in {', '.join(wrong[:_SHOWN])}{more}"


def _constants(own: Mapping[str, int], others: Mapping[str, int]) -> str | None:
    """How constants are not the model's."""
    added = collections.Counter(others) - collections.Counter(own)
    missing = collections.Counter(own) - collections.Counter(others)
    if not added and not missing:
        return None

    def shown(found: Mapping[str, int]) -> str:
        return "; ".join([*found][:_SHOWN]) or "none"

    return (
        f"constants that are not the model's: {shown(added)}; and constants of "
        f"the model that are missing: {shown(missing)}"
    )


def _graph(own: Mapping[str, str], others: Mapping[str, str]) -> str | None:
    """How an artifact's graph is not the model's."""
    wrong = [key for key, value in own.items() if others.get(key) != value]
    if outputs := [key for key in wrong if key]:
        return f"it computes {', '.join(outputs[:_SHOWN])} differently"
    if wrong:
        return "its operators with side effects are not the model's"
    return None
