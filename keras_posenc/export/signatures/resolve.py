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
    given = signatures if isinstance(signatures, Mapping) else {}
    pairs = [
        (name, *(value if isinstance(value, tuple | list) else (value, {})))
        for name, value in given.items()
    ]
    if not pairs or not all(
        len(each) == 3
        and isinstance(each[0], str)
        and re.fullmatch(r"(?!__saved_model)\w+", each[0])
        and isinstance(each[1], keras.Model)
        and isinstance(each[2], Mapping)
        for each in pairs
    ):
        raise ValueError(
            "`signatures` must map names, of letters, digits and underscores, "
            "to a keras.Model or to one with shapes by input, such as "
            f"`signatures={{'{DEFAULT}': (model, {{'ids': (None, 64)}})}}`. "
            f"Received: signatures={signatures!r:.300}"
        )
    for name, model, shapes in pairs:
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
    """Returns signatures cut after strings and lookups: see `cut_strings`.

    Shapes are those of the cut model's inputs.
    """
    if signatures is None:
        numeric = filter(_is_numeric, offered(model).values())
        signatures = {DEFAULT: next(numeric, model)}
    resolved = []
    for name, each, shapes in as_given(signatures):
        if is_to_be_cut(each):
            signature = _cut(name, each)
            specs = with_shapes(name, each, signature.specs, shapes)
            signature = dataclasses.replace(signature, specs=specs)
        else:
            signature = signature_of(name, each, shapes)
        for own, spec in signature.specs.items():
            if spec.dtype in ("string", "bfloat16"):
                raise ValueError(
                    "LiteRT and ONNX take no inputs of strings or bfloat16. "
                    f"Received: signature '{name}' with the {spec.dtype} input "
                    f"'{own}'; give a model that starts with other numbers, "
                    "such as float32"
                )
        resolved.append(signature)
    return resolved


def _is_numeric(model: keras.Model) -> bool:
    tensors = [*model.inputs, *keras.tree.flatten(model.output)]
    return all(tensor.dtype != "string" for tensor in tensors)


def _cut(name: str, model: keras.Model) -> Signature:
    try:
        return cut_strings(signature_of(name, model, {}))
    except ValueError as error:
        hint = f". {_OFFERED}, such as 'from_ids'" if offered(model) else ""
        raise ValueError(
            "LiteRT and ONNX take no strings and have no lookup tables, and "
            f"signature '{name}' cannot be cut after these: {error}{hint}"
        ) from error


def offered(model: keras.Model) -> dict[str, keras.Model]:
    """Returns the signatures that a model offers, by name; most have none."""
    return dict((Offers.of(model).offered_signatures or dict)())


def resolve_serving_signatures(
    model: keras.Model,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
) -> list[Signature]:
    """Returns the signatures of a server's export of `model`."""
    resolved = resolve_signatures(model, signatures)
    further: list[Signature] = []
    if signatures is None:
        added = Offers.of(model).added_signatures or dict
        further = [signature_of(*each, {}) for each in added().items()]
        if offered(model):
            resolved = [
                with_lengths(each) if each.name == "from_ids" else each
                for each in resolved
            ]
        else:
            default, *cut = resolved
            shapes = [spec.shape[1:] for spec in default.specs.values()]
            if not cut and shapes == [(None,)] and not lookups(default):
                cut = [default]
            of_ids = map(with_lengths, cut)
            resolved = [default, *(x for x in of_ids if x is not default)]
    if labels is not None:
        resolved = with_labels(resolved, labels)
    return [*resolved, *further]
