"""The embeddings that a model computes before its output."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.export.signatures.cut_strings import steps
from keras_posenc.export.signatures.from_model import as_dense, output_of
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import carried_mask

CONTEXTUAL, POOLED, MASK = "contextual", "pooled", "mask"

Pair = tuple[keras.KerasTensor, keras.KerasTensor]


def encode_signature(signature: Signature) -> Signature | None:
    """Returns the signature `encode`, whose outputs are a model's embeddings.

    They are found by structure: if exactly one operation between text or ids
    and the outputs makes `(batch, dim)` out of `(batch, seq, dim)`, its input
    and output are the contextual and the pooled embeddings. At padded positions
    `contextual` holds whatever the model computes there. If it has a Keras
    mask, this is the output `mask`, bool of `(batch, seq)`.
    """
    model = signature.model
    if not getattr(model, "inputs", None) or not any(
        spec.dtype == "string" or "int" in spec.dtype
        for spec in signature.specs.values()
    ):
        return None
    pair = _find(keras.tree.flatten(output_of(model)))
    if pair is None:
        return None
    names = list(signature.specs)
    cut = keras.Model(
        model.inputs,
        dict(zip((CONTEXTUAL, POOLED), pair, strict=True)),
        name=f"{model.name}_encode",
    )

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        found = cut([tensors[name] for name in names], training=False)
        return _with_mask({key: as_dense(x) for key, x in found.items()})

    return Signature("encode", cut, signature.specs, call)


def _with_mask(outputs: dict[str, Any]) -> dict[str, Any]:
    # Take the mask that layers see; symbolic tensors may lack it.
    mask = carried_mask(outputs[CONTEXTUAL])
    if mask is None or len(mask.shape) != 2:
        return outputs
    # A mask may be of shape (1, seq), and of any dtype.
    shape = (ops.shape(outputs[POOLED])[0], ops.shape(mask)[1])
    mask = ops.broadcast_to(ops.cast(mask, "bool"), shape)
    return {**outputs, MASK: mask}


def _find(outputs: Sequence[keras.KerasTensor]) -> Pair | None:
    """Returns the contextual and the pooled embeddings, if one pair fits."""
    found = {
        tuple(map(id, pair)): pair
        for target, operation, sources in steps(outputs)
        if _is_float(target, 2)
        for source in sources
        if _is_float(source, 3)
        for pair in [(source, target)]
    }
    if found:
        return next(iter(found.values())) if len(found) == 1 else None
    inner = {
        id(target): (operation, sources)
        for target, operation, sources in steps(outputs)
        if isinstance(operation, keras.Model)
        and getattr(operation, "inputs", None)
    }
    pairs = []
    for model, sources in inner.values():
        pair = _find(keras.tree.flatten(output_of(model)))
        if pair is not None:
            cut = keras.Model(model.inputs, pair)
            cut.supports_masking = True  # else Keras warns of the ids' mask
            # Sources after the inputs are their masks.
            pairs.append(tuple(cut(sources[: len(model.inputs)])))
    return pairs[0] if len(pairs) == 1 else None


def _is_float(tensor: keras.KerasTensor, rank: int) -> bool:
    return (
        "float" in tensor.dtype
        and len(tensor.shape) == rank
        and tensor.shape[-1] is not None
    )
