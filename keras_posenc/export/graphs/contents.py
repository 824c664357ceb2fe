"""Compares the contents of a SavedModel with its model's.

Test inputs are a sample: a weight that none of them reaches may have any value.
So weights, constants and graphs are compared too, bit for bit.
"""

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from keras_posenc.export import units
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within
from keras_posenc_worker.saved_model_contents import (
    UNNAMED,
    Reader,
    Weight,
    differences,
)

_SHOWN = 3  # constants, or weights, of one signature


def tables_of(signatures: Sequence[Signature]) -> list[Any]:
    """Returns lookup tables and similar resources of layers."""
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
    constants: Mapping[int, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Returns the model's own contents, by signature.

    Args:
        signatures: The signatures.
        functions: Their graph functions, by name.
        constants: The names of tensors that the functions capture, by the `id`
            of the tensor.
    """
    import tensorflow as tf

    # Not every class of tables has a method that exports one.
    tables = {
        id(table.resource_handle): Weight(
            "a lookup table",
            "",
            tuple(
                tf.raw_ops.LookupTableExportV2(
                    table_handle=table.resource_handle,
                    Tkeys=table.key_dtype,
                    Tvalues=table.value_dtype,
                )
            ),
        )
        for table in tables_of(signatures)
        if hasattr(table, "key_dtype")
    }
    reader = Reader(tables, constants)
    found = {
        name: reader.of_function(function)
        for name, function in functions.items()
    }
    weights = {each for x in found.values() for each in x.weights}
    digests = {weight: weight.digest() for weight in weights}
    return {name: each.contents(digests) for name, each in found.items()}


def compare_contents(
    wanted: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Mapping[str, Any]],
    more_outputs: Collection[str] = (),
) -> tuple[list[str], list[str], list[str]]:
    """Compares the contents of a SavedModel with the model's.

    Args:
        wanted: The model's contents, by signature.
        found: The file's contents.
        more_outputs: Signatures with outputs that the model does not have,
            whose constants are not known.

    Returns:
        `different_values`, `different_graph` and `not_compared` of
        `VerificationReport`.
    """
    different_values: list[str] = []
    different_graph: list[str] = []
    not_compared: list[str] = []
    for name, own in wanted.items():
        others = found[name]
        wrong = _weights(own["weights"], others["weights"])
        if wrong is not None:
            (different_graph if wrong == _ORDER else different_values).append(
                f"{name}: {wrong}"
            )
        pairs = [*own["weights"], *others["weights"]]
        if any(value is None for _, value in pairs):
            not_compared.append(f"{name}: resources other than lookup tables")
        wrong = None
        if name not in more_outputs:
            wrong = _constants({*own["constants"]}, {*others["constants"]})
        graph = {key: others["graph"].get(key) for key in own["graph"]}
        different = differences(own["graph"], graph)
        if wrong is None and different:
            shown = [*filter(None, different)][:_SHOWN] or ["side effects"]
            wrong = f"it computes {', '.join(shown)} differently"
        if wrong is None and (more := {*others["options"]} - {*own["options"]}):
            wrong = f"it calls functions with {', '.join(sorted(more))}"
        if wrong is not None:
            different_graph.append(f"{name}: {wrong}")
    return different_values, different_graph, not_compared


_ORDER = "its weights are the model's, in another order"


def _weights(
    own: Sequence[tuple[str, str | None]],
    others: Sequence[Sequence[str | None]],
) -> str | None:
    """Returns how weights, in the order of their use, differ, or None."""
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
    named = [name for name in wrong if name != UNNAMED]
    shown = named[:_SHOWN]
    if more := named[_SHOWN:]:
        shown.append(f"{len(more)} more")
    if unnamed := len(wrong) - len(named):
        shown.append(f"{units.count(unnamed, 'constant')} without a name")
    *most, last = shown
    both = ", ".join(most) + " and " * bool(most)
    return f"different values in {both}{last}"


def _constants(own: set[str], others: set[str]) -> str | None:
    """Returns how constants differ, or None."""
    if own == others:
        return None
    added, missing = (
        "; ".join(sorted(each)[:_SHOWN]) or "none"
        for each in (others - own, own - others)
    )
    return (
        f"constants that are not the model's: {added}; and constants of the "
        f"model that are missing: {missing}"
    )
