"""The function `serve`, by which Python calls exports as Keras writes them."""

from collections.abc import Iterable, Mapping
from typing import Any

from keras_posenc_worker.agreement import (
    Disagreement,
    python_signatures,
)
from keras_posenc_worker.graph_digests import graph_of

_DEFAULT, _SERVE = "serving_default", "serve"


def check_serve(
    meta: Any, library: Mapping[str, Any]
) -> tuple[set[str], dict[str, Any]] | None:
    """How `serve`, as Keras's own exports have it, takes inputs and outputs.

    Python finds it beside the signatures, and it must compute nothing else than
    the signature `serving_default`, of the same weights.

    Returns:
        Its paths among `functions_of`, and `arguments` and `results`: lists
        and dicts (as `{"by": ...}`), with the names that an input or output
        may have as `{"of": [...]}`. None where there is no `serve`.

    Raises:
        Disagreement: It computes something else.
    """
    from tensorflow.python.saved_model import nested_structure_coder
    from tensorflow.python.util import nest

    objects = meta.object_graph_def.nodes
    concrete = meta.object_graph_def.concrete_functions
    found = [c for c in objects[0].children if c.local_name == _SERVE]
    default = python_signatures(objects).get(_DEFAULT)
    if not found or default is None:
        return None

    def check(holds: Any, what: str) -> None:
        if not holds:
            raise Disagreement(
                f"'{_SERVE}', which Python calls, {what} '{_DEFAULT}', which "
                "servers run"
            )

    check(len(found) == 1, "is not one function, as")
    node = objects[found[0].node_id]
    names = [*node.function.concrete_functions]
    check(
        len(names) == 1 and {*names} <= concrete.keys() & library.keys(),
        "has not the one graph of",
    )
    (name,) = names
    own, wanted = concrete[name], concrete[default.concrete_function_name]
    check(
        [*own.bound_inputs] == [*wanted.bound_inputs],
        "reads other weights than",
    )
    decode = nested_structure_coder.decode_proto
    given = decode(own.canonicalized_input_signature)
    results = decode(own.output_signature)
    inputs = [spec.name for spec in nest.flatten(given)]
    check(
        sorted(inputs) == sorted(default.argument_keywords) and not given[1],
        "has not the inputs of",
    )
    places = [str(place) for place in range(len(nest.flatten(results)))]
    outputs = sorted(meta.signature_def[_DEFAULT].outputs)
    check(
        len(places) == len(library[name].signature.output_arg),
        "has not the outputs of",
    )
    known = graph_of(
        default.concrete_function_name,
        library,
        default.argument_keywords,
        outputs,
    )
    computed = graph_of(name, library, inputs, places)
    candidates = [
        [each for each in outputs if known[each] == computed[place]]
        for place in places
    ]
    check(
        all(candidates) and known[""] == computed[""],
        "computes something else than",
    )
    paths = {_SERVE} | {
        f"{_SERVE}.{child.local_name}"
        for child in node.children
        if objects[child.node_id].bare_concrete_function.concrete_function_name
        == name
    }

    def told(structure: Any, leaves: Iterable[Any]) -> Any:
        return nest.pack_sequence_as(
            structure, [_Leaf(leaf) for leaf in leaves]
        )

    return paths, {
        "arguments": _as_json(told(given[0], [[each] for each in inputs])),
        "results": _as_json(told(results, candidates)),
    }


class _Leaf:
    """One tensor of a structure, by what is told of it."""

    def __init__(self, told: Any) -> None:
        self.told = told


def _as_json(structure: Any) -> Any:
    if isinstance(structure, _Leaf):
        return {"of": structure.told}
    if isinstance(structure, Mapping):
        return {"by": {k: _as_json(v) for k, v in structure.items()}}
    return [_as_json(each) for each in structure]
