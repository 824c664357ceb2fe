"""The embeddings that a model computes on the way to its answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_posenc.artifacts.signatures import Signature, output_of

CONTEXTUAL, POOLED, MASK = "contextual", "pooled", "mask"


def encode_signature(signature: Signature) -> Signature | None:
    """The signature `encode`: a model's embeddings instead of its answer.

    They are found by structure: where, on the way from text or ids to the
    outputs, one operation makes a tensor of `(batch, dim)` out of one of
    `(batch, seq, dim)`, the two are the pooled and the contextual embeddings.
    At padding, `contextual` holds whatever the model computes there, and
    `mask`, bool of `(batch, seq)`, False: where the model has such a mask.

    Args:
        signature: That of the whole model.

    Returns:
        A signature of the same inputs; or None if the model is no graph, takes
        neither text nor ids, or has no such operation, or several.
    """
    model = signature.model
    if not getattr(model, "inputs", None) or not any(
        spec.dtype == "string" or "int" in spec.dtype
        for spec in signature.specs.values()
    ):
        return None
    found = _find(keras.tree.flatten(output_of(model)))
    if found is None:
        return None
    names = list(signature.specs)
    cut = keras.Model(model.inputs, found, name=f"{model.name}_encode")

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return cut([tensors[name] for name in names], training=False)

    return Signature("encode", cut, signature.specs, call)


def _find(
    outputs: Sequence[keras.KerasTensor],
) -> dict[str, keras.KerasTensor] | None:
    """The embeddings and their mask by name, if they are unambiguous."""
    found = {
        (id(source), id(target)): {CONTEXTUAL: source, POOLED: target}
        for target, _, sources in _steps(outputs)
        if _is_float(target, 2)
        for source in sources
        if _is_float(source, 3)
    }
    if len(found) > 1:
        return None
    if found:
        (embeddings,) = found.values()
        mask = getattr(embeddings[CONTEXTUAL], "_keras_mask", None)
        if mask is not None and len(mask.shape) == 2:
            embeddings[MASK] = mask
        return embeddings
    inner = {
        id(target): (operation, sources)
        for target, operation, sources in _steps(outputs)
        if isinstance(operation, keras.Model)
        and getattr(operation, "inputs", None)
    }
    several = []
    for model, sources in inner.values():
        within = _find(keras.tree.flatten(output_of(model)))
        if within is not None:
            cut = keras.Model(model.inputs, within)
            cut.supports_masking = True  # else Keras warns of the ids' mask
            # What comes after the inputs is their masks.
            several.append(cut(sources[: len(model.inputs)]))
    return several[0] if len(several) == 1 else None


def _steps(
    outputs: Sequence[keras.KerasTensor],
) -> Iterator[tuple[keras.KerasTensor, Any, list[keras.KerasTensor]]]:
    """Each tensor on the way to the outputs, what made it, and out of what."""
    seen = set()
    remaining = list(outputs)
    while remaining:
        tensor = remaining.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        operation, node_index, _ = tensor._keras_history
        sources = operation._inbound_nodes[node_index].input_tensors
        yield tensor, operation, sources
        remaining.extend(sources)


def _is_float(tensor: keras.KerasTensor, rank: int) -> bool:
    return (
        "float" in tensor.dtype
        and len(tensor.shape) == rank
        and tensor.shape[-1] is not None
    )
