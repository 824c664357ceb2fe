"""The signatures of an export, from a model and the caller's arguments."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.cut_strings import (
    cut_strings,
    from_ids,
    is_to_be_cut,
    lookups,
)
from keras_posenc.export.signatures.embeddings import encode_signature
from keras_posenc.export.signatures.from_model import signature_of, with_shapes
from keras_posenc.export.signatures.labels import with_labels
from keras_posenc.export.signatures.lengths import with_lengths
from keras_posenc.export.signatures.signature import DEFAULT, Signature

# Advice for a model that offers signatures.
_OFFERED = (
    "Leave `signatures` out, or give one of generator.offered_signatures()"
)


def resolve_signatures(
    model: keras.Model, signatures: Mapping[str, Any] | None = None
) -> list[Signature]:
    """Returns the signatures of an export of `model`."""
    if signatures is None and not (signatures := offered(model)):
        default = signature_of(DEFAULT, model, {})
        cut = from_ids(default)
        return [default] if cut is None else [default, cut]
    return [signature_of(*given) for given in as_given(signatures)]


def as_given(
    signatures: Any,
) -> Iterator[tuple[str, keras.Model, Mapping[str, Any]]]:
    """Yields name, model and shapes by input name of each signature."""
    if not isinstance(signatures, Mapping) or not signatures:
        raise ValueError(
            "`signatures` must be a dict of a model, or of a pair (model, "
            f"shapes), by name, such as {{'{DEFAULT}': model}}. Received: "
            f"signatures={signatures!r}"
        )
    for name, value in signatures.items():
        pair = value if isinstance(value, tuple | list) else (value, {})
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"(?!__saved_model)\w+", name)
            or len(pair) != 2
            or not isinstance(pair[0], keras.Model)
        ):
            raise ValueError(
                "`signatures` must map names, of letters, digits and "
                "underscores, to a keras.Model or to a pair (model, shapes). "
                f"Received: {name!r}: {value!r}"
            )
        model, shapes = pair
        if not isinstance(shapes, Mapping):
            raise ValueError(
                f"Signature '{name}': shapes must be a dict by input name. "
                f"Received: {shapes!r}"
            )
        if Offers.of(model).is_drawn:
            raise ValueError(
                f"Signature '{name}': model '{model.name}' draws random "
                "numbers by a seed of its own, so that no file can reproduce "
                f"its outputs. {_OFFERED}, which take the noise too"
            )
        yield name, model, shapes


def resolve_numeric_signatures(
    model: keras.Model, signatures: Mapping[str, Any] | None = None
) -> list[Signature]:
    """Returns signatures without strings, for runtimes that cannot tokenize.

    Like `resolve_signatures`, but a model of strings, or of integers that it
    looks up, is cut after them: see `cut_strings`. Shapes are those of the cut
    model's inputs.
    """
    if signatures is None:
        signatures = offered_in_numbers(model) or {DEFAULT: model}
    resolved = [_numeric_signature(*each) for each in as_given(signatures)]
    for signature in resolved:
        for name, spec in signature.specs.items():
            if spec.dtype in ("string", "bfloat16"):
                raise ValueError(
                    "LiteRT and ONNX take no inputs of strings or bfloat16. "
                    f"Received: signature '{signature.name}' with the "
                    f"{spec.dtype} input '{name}'; give a model that starts "
                    "with other numbers, such as float32"
                )
    return resolved


def _numeric_signature(
    name: str, model: keras.Model, shapes: Mapping[str, Any]
) -> Signature:
    if is_to_be_cut(model):
        whole = signature_of(name, model, {})
        try:
            cut = cut_strings(whole)
        except ValueError as error:
            hint = f". {_OFFERED}, such as 'from_ids'" if offered(model) else ""
            raise ValueError(
                "LiteRT and ONNX take no strings and have no lookup tables, "
                f"and signature '{name}' cannot be cut after these: "
                f"{error}{hint}"
            ) from error
        specs = with_shapes(name, model, cut.specs, shapes)
        return dataclasses.replace(cut, specs=specs)
    return signature_of(name, model, shapes)


def offered(model: keras.Model) -> dict[str, keras.Model]:
    """Returns the signatures that a model offers, by name; most have none."""
    offer = Offers.of(model).offered_signatures
    if offer is None:
        return {}
    found: Any = offer()
    if not isinstance(found, Mapping) or DEFAULT not in found:
        raise ValueError(
            f"`offered_signatures` of model '{model.name}' must return a dict "
            f"of models by name, with '{DEFAULT}'. Received: {found!r}"
        )
    return dict(found)


def offered_in_numbers(model: keras.Model) -> dict[str, keras.Model]:
    """Returns the first offered signature without strings."""
    for each in offered(model).values():
        tensors = [*each.inputs, *keras.tree.flatten(each.output)]
        if all(tensor.dtype != "string" for tensor in tensors):
            return {DEFAULT: each}
    return {}


def resolve_serving_signatures(
    model: keras.Model,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
) -> list[Signature]:
    """Returns the signatures of a server's export of `model`."""
    resolved = resolve_signatures(model, signatures)
    further: list[Signature | None] = []
    if signatures is None:
        if offered(model):
            resolved = [
                with_lengths(each) if each.name == "from_ids" else each
                for each in resolved
            ]
        else:
            resolved, further = _with_ids(*resolved)
        added = Offers.of(model).added_signatures or dict
        further = [
            *(signature_of(name, each, {}) for name, each in added().items()),
            *further,
        ]
    if labels is not None:
        resolved = with_labels(resolved, labels)
    return [*resolved, *(each for each in further if each is not None)]


def _with_ids(
    default: Signature, *cut: Signature
) -> tuple[list[Signature], list[Signature | None]]:
    """Returns a model's signatures from texts and ids, and its embeddings."""
    looked_up = [default.specs[name] for name in lookups(default)]
    shapes = [spec.shape[1:] for spec in default.specs.values()]
    if not cut and shapes == [(None,)] and not looked_up:
        cut = (default,)
    of_ids = [with_lengths(each) for each in cut]
    encode = None
    if all(_is_sequence_of_strings(spec) for spec in looked_up):
        encode = encode_signature(default)
    return [default, *(x for x in of_ids if x is not default)], [encode]


def _is_sequence_of_strings(spec: keras.InputSpec) -> bool:
    return spec.dtype == "string" and spec.shape[1:] not in ((), (1,))
