"""What a model's own vocabularies say of its inputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.signatures.naming import output_of
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.artifacts.signatures.strings import steps
from keras_posenc.keras_internals import layers_within

_LOOKUPS = (
    keras.layers.HashedCrossing,
    keras.layers.Hashing,
    keras.layers.IntegerLookup,
    keras.layers.StringLookup,
)
_UNKNOWN = "an unknown one"


def lookups(signature: Signature) -> dict[str, list[keras.Layer]]:
    """The layers that make ids of each input, by the input's name.

    None of an input that is ids already, for an `Embedding` too, or anything
    else; nor of a model that is no graph.
    """
    model = signature.model
    inputs = getattr(model, "inputs", None) or []
    if len(inputs) != len(signature.specs):
        return {}
    found = {}
    for name, tensor in zip(signature.specs, inputs, strict=True):
        readers = list(_readers(model, tensor))
        makers = [each for each in readers if isinstance(each, _LOOKUPS)]
        if makers and not any(map(_takes_ids, readers)):
            found[name] = makers
    return found


def vocabularies(signature: Signature) -> dict[str, np.ndarray]:
    """Values that each input of a lookup can take, an unknown one included."""
    found = {
        name: _values(layers, signature.specs[name].dtype)
        for name, layers in lookups(signature).items()
        if "float" not in signature.specs[name].dtype
    }
    return {name: values for name, values in found.items() if values.size}


def _readers(model: keras.Model, tensor: keras.KerasTensor) -> Iterator[Any]:
    """What a tensor goes to, through what leaves it integers or strings."""
    for target, operation, sources in steps(
        keras.tree.flatten(output_of(model))
    ):
        places = [i for i, source in enumerate(sources) if source is tensor]
        if not places:
            continue
        inner = getattr(operation, "inputs", None)
        if isinstance(operation, keras.Model) and inner:
            for place in places:
                if place < len(inner):  # else it is a mask
                    yield from _readers(operation, inner[place])
        elif isinstance(operation, _LOOKUPS):
            if not getattr(operation, "invert", False):  # that takes ids
                yield operation
        elif target.dtype == "string" or "int" in target.dtype:
            yield from _readers(model, target)
        else:
            yield operation


def _takes_ids(reader: Any) -> bool:
    return isinstance(reader, keras.Layer) and any(
        isinstance(layer, keras.layers.Embedding)
        for layer in layers_within(reader)
    )


def _values(layers: Sequence[keras.Layer], dtype: str) -> np.ndarray:
    is_text = dtype == "string"
    known = []
    strict = []  # the vocabularies that hold whatever may come
    for layer in layers:
        if hasattr(layer, "get_vocabulary"):
            known.append({*layer.get_vocabulary(include_special_tokens=False)})
            if layer.num_oov_indices == 0:
                strict.append(known[-1])
        else:  # it hashes anything
            known.append({*(map(str, range(99)) if is_text else range(99))})
    if strict:
        values = set.intersection(*strict)
    else:
        values = set.union(*known)
        values.add(_UNKNOWN if is_text else max(values, default=0) + 1)
    if not is_text:
        limits = np.iinfo(dtype)
        values = {v for v in values if limits.min <= v <= limits.max}
    return np.array(sorted(values), object if is_text else dtype)
