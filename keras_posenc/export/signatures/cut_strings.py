"""Models cut after the strings and lookup tables that LiteRT and ONNX lack."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.from_model import (
    check_names,
    input_names,
    named_outputs,
    output_of,
)
from keras_posenc.export.signatures.signature import Signature, StringModel
from keras_posenc.keras_internals import (
    carried_mask,
    layer_of,
    layers_within,
    sources_of,
)

LIMITS = ("sequence_length", "max_length")  # of a tokenizer


def from_ids(signature: Signature) -> Signature | None:
    """Returns the signature cut after its strings, or None if it takes none."""
    if [spec.dtype for spec in signature.specs.values()] != ["string"]:
        return None
    try:
        cut = cut_strings(signature)
    except ValueError:
        return None
    if len(cut.specs) != 1:
        return None
    return dataclasses.replace(cut, name="from_ids", strings=None)


def is_to_be_cut(model: keras.Model) -> bool:
    """Returns whether a model has strings, or integers that it looks up."""
    inputs = getattr(model, "inputs", None) or []
    if any(tensor.dtype == "string" for tensor in inputs):
        return True
    return bool(inputs and _first_numeric_tensors(output_of(model))[0])


def cut_strings(signature: Signature) -> Signature:
    """Returns the signature cut where strings and lookups become numbers.

    One tensor is named `ids` or `features`. Of several, each has the names of
    its inputs, and of its layer if these are not unique.
    """
    model = signature.model
    outputs = output_of(model)
    cuts, rest = _first_numeric_tensors(outputs)
    _check_cuts(model, keras.tree.flatten(outputs), cuts)
    inputs = input_names(model)
    sources = dict(zip(inputs, model.inputs, strict=True))
    kept = [
        (name, tensor)
        for name, tensor in sources.items()
        if any(tensor is each for each in rest)
    ]
    tensors = sorted(
        [*_named(cuts, sources, dict(kept)), *kept],
        key=lambda pair: inputs.index(_roots(pair[1], sources)[0]),
    )
    names = [name for name, _ in tensors]
    check_names(signature.name, names)
    made = {n: tensor for n, tensor in tensors if tensor is not sources.get(n)}
    part = keras.Model(
        [tensor for _, tensor in tensors],
        outputs,
        name=f"{model.name}_from_ids",
    )
    part.supports_masking = True  # else Keras warns of the masks given below
    # A tokenizer's mask is cut off with it.
    pad_ids = {
        name: getattr(layer_of(tensor), "pad_id", 0)
        for name, tensor in tensors
        if "int" in tensor.dtype and carried_mask(tensor) is not None
    }

    def call(values: Mapping[str, Any]) -> dict[str, Any]:
        masks = [
            keras.ops.not_equal(values[name], pad_ids[name])
            if name in pad_ids
            else None
            for name in names
        ]
        found = part(
            [values[name] for name in names],
            mask=masks if pad_ids else None,
            training=False,
        )
        return named_outputs(model, found)

    # A Sequential has the batch of its first data for its own.
    is_free = all(spec.shape[0] is None for spec in signature.specs.values())
    specs = {
        name: keras.InputSpec(
            shape=(None if is_free else tensor.shape[0], *tensor.shape[1:]),
            dtype=tensor.dtype,
        )
        for name, tensor in tensors
    }
    return Signature(
        signature.name,
        part,
        specs,
        call,
        cut_at=cuts[0] if len(specs) == 1 else None,
        strings=StringModel(signature, names, made),
    )


def _check_cuts(
    model: keras.Model,
    outputs: Sequence[keras.KerasTensor],
    cuts: Sequence[keras.KerasTensor],
) -> None:
    if any(tensor.dtype == "string" for tensor in outputs):
        raise ValueError("an output is a string")
    if any(cut is output for cut in cuts for output in outputs):
        raise ValueError("an output is the first numeric tensor itself")
    for cut in cuts:
        layer = layer_of(cut)
        if isinstance(layer, keras.Model):
            raise ValueError(
                f"they become numbers inside model '{layer.name}', which is a "
                f"layer of '{model.name}': make the numbers in "
                f"'{model.name}' itself, and give it a model of numbers"
            )
        if getattr(cut, "ragged", False) or getattr(layer, "_ragged", False):
            raise ValueError(
                f"layer '{layer.name}' makes ragged tensors of them, which no "
                "input can be: make it with ragged=False, and the layers after "
                "it with masks"
            )
    for tensor, layer, _ in steps(cuts):
        if getattr(layer, "weights", None) and not any(
            tensor is cut for cut in cuts
        ):
            raise ValueError(
                f"layer '{layer.name}' before them has weights. Export the "
                "parts of the model before and after them"
            )


def longest_text(signature: Signature) -> int | None:
    """Returns the most ids that a model's tokenizers make of a text, if any."""
    if signature.strings is not None:
        signature = signature.strings.signature
    cuts = [signature.cut_at]
    if signature.cut_at is None:
        outputs = getattr(signature.model, "outputs", None) or []
        cuts, _ = _first_numeric_tensors(outputs)
    limits = [limit_of(layer_of(cut)) for cut in cuts]
    return min((each for each in limits if each is not None), default=None)


def limit_of(tokenizer: Any) -> int | None:
    """Returns the most ids that a tokenizer makes of a text, or None."""
    found = (getattr(tokenizer, name, None) for name in LIMITS)
    return next((limit for limit in found if isinstance(limit, int)), None)


def _named(
    cuts: Sequence[keras.KerasTensor],
    sources: Mapping[str, keras.KerasTensor],
    kept: Iterable[str],
) -> list[tuple[str, keras.KerasTensor]]:
    """Returns the first numeric tensors with their names; see `cut_strings`."""
    if len(cuts) == len(sources) == 1:
        return [("ids" if "int" in cuts[0].dtype else "features", cuts[0])]
    names = []
    for cut in cuts:
        roots = _roots(cut, sources)
        texts = [name for name in roots if sources[name].dtype == "string"]
        names.append("_".join(texts or roots))
    taken = [*names, *kept]
    return [
        (name + f"_{layer_of(cut).name}" * (taken.count(name) > 1), cut)
        for name, cut in zip(names, cuts, strict=True)
    ]


def _roots(
    tensor: keras.KerasTensor, sources: Mapping[str, keras.KerasTensor]
) -> list[str]:
    """Returns the names of the inputs that a tensor depends on, in order."""
    found = {id(each) for each, _, _ in steps([tensor])}
    return [name for name, each in sources.items() if id(each) in found]


def _first_numeric_tensors(
    outputs: Any,
) -> tuple[list[keras.KerasTensor], list[keras.KerasTensor]]:
    """Returns the first tensors made of strings or lookups, and all later."""
    cuts, rest = list[keras.KerasTensor](), list[keras.KerasTensor]()
    for tensor, operation, sources in steps(
        keras.tree.flatten(outputs), beyond_cuts=False
    ):
        (cuts if _is_cut(operation, sources) else rest).append(tensor)
    return cuts, rest


def _is_cut(operation: Any, sources: Sequence[keras.KerasTensor]) -> bool:
    """Returns whether an operation makes numbers of strings, or looks up."""
    return any(source.dtype == "string" for source in sources) or (
        isinstance(operation, _LOOKUPS)
        and not getattr(operation, "invert", False)
    )


def steps(
    outputs: Sequence[keras.KerasTensor], beyond_cuts: bool = True
) -> Iterator[tuple[keras.KerasTensor, Any, list[keras.KerasTensor]]]:
    """Yields each tensor before outputs or cuts, its operation and inputs."""
    seen = set()
    remaining = list(outputs)
    while remaining:
        tensor = remaining.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        operation, sources = layer_of(tensor), sources_of(tensor)
        yield tensor, operation, sources
        if beyond_cuts or not _is_cut(operation, sources):
            remaining.extend(sources)


_LOOKUPS = (
    keras.layers.HashedCrossing,
    keras.layers.Hashing,
    keras.layers.IntegerLookup,
    keras.layers.StringLookup,
)
_UNKNOWN = "an unknown one"


def lookups(signature: Signature) -> dict[str, list[keras.Layer]]:
    """Returns the layers that make ids of words and categories, by input."""
    model = signature.model
    inputs = getattr(model, "inputs", None) or []
    if len(inputs) != len(signature.specs):
        return {}
    found = {}
    for name, tensor in zip(signature.specs, inputs, strict=True):
        readers = list(_readers(model, tensor))
        makers = [each for each in readers if isinstance(each, _LOOKUPS)]
        takes_ids = any(
            isinstance(layer, keras.layers.Embedding)
            for reader in readers
            if isinstance(reader, keras.layers.Layer)
            for layer in layers_within(reader)
        )
        if makers and not takes_ids:
            found[name] = makers
    return found


def vocabularies(signature: Signature) -> dict[str, np.ndarray]:
    """Returns values for each input of a lookup, one unknown value included."""
    found = {
        name: _values(layers, signature.specs[name].dtype)
        for name, layers in lookups(signature).items()
        if "float" not in signature.specs[name].dtype
    }
    return {name: values for name, values in found.items() if values.size}


def _readers(model: keras.Model, tensor: keras.KerasTensor) -> Iterator[Any]:
    """Yields what a tensor goes to, after integer and string operations."""
    outputs = keras.tree.flatten(output_of(model))
    for target, operation, sources in steps(outputs):
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


def _values(layers: Sequence[keras.Layer], dtype: str) -> np.ndarray:
    is_text = dtype == "string"
    known, strict = [], []  # the latter have no unknown values
    for layer in layers:
        if hasattr(layer, "get_vocabulary"):
            known.append({*layer.get_vocabulary(include_special_tokens=False)})
            if layer.num_oov_indices == 0:
                strict.append(known[-1])
        else:  # hashing takes any value
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
