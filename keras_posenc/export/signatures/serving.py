"""The signatures of a SavedModel for a server."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_posenc.export.signatures.compiled import (
    compile_signatures,
    resolve_compiled,
    takes_strings,
)
from keras_posenc.export.signatures.cut_strings import lookups
from keras_posenc.export.signatures.embeddings import encode_signature
from keras_posenc.export.signatures.from_model import resolve_signatures
from keras_posenc.export.signatures.labels import with_labels
from keras_posenc.export.signatures.lengths import with_lengths
from keras_posenc.export.signatures.signature import Signature, offered


def resolve_serving_signatures(
    model: keras.Model,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
    compiled: Any = None,
) -> list[Signature]:
    """The signatures of an artifact of `model` for a server.

    Args:
        model: The model to export.
        signatures: As for `resolve_signatures`, if given. By default those
            that the model offers, `from_ids` with `lengths`; else
            `serving_default`, the model itself; `from_ids`, from `ids` and
            `lengths`, where the model takes strings or nothing but a sequence
            of ids; and `encode`, the embeddings, where it has some. Numbers
            that it looks up in a vocabulary are no ids, and a category, looked
            up likewise, is no text: there, neither is made.
        labels: The names of a classifier's classes; see `with_labels`.
        compiled: What XLA is to compile; see `resolve_compiled`.

    Raises:
        ValueError: As `resolve_signatures`, `with_labels`,
            `resolve_compiled` and `compile_signatures` do.
    """
    sizes = resolve_compiled(compiled)
    resolved = resolve_signatures(model, signatures)
    encode = None
    if signatures is None and offered(model):
        if sizes is not None:
            resolved = compile_signatures(resolved, sizes)
        resolved = [
            (
                each.name == "from_ids"
                and len(each.specs) == 1
                and with_lengths(each)
            )
            or each
            for each in resolved
        ]
    elif signatures is None:
        default, *cut = resolved
        looked_up = [default.specs[name] for name in lookups(default)]
        if all(_is_sequence_of_strings(spec) for spec in looked_up):
            encode = encode_signature(default)
        if sizes is not None:
            default, *cut = compile_signatures(resolved, sizes)
        shapes = [spec.shape[1:] for spec in default.specs.values()]
        if not cut and shapes == [(None,)] and not looked_up:
            cut = [default]
        from_ids = [with_lengths(signature) or signature for signature in cut]
        resolved = [default, *(s for s in from_ids if s is not default)]
    elif sizes is not None:
        resolved = compile_signatures(resolved, sizes)
    if labels is not None:
        resolved = with_labels(resolved, labels)
    if encode is None:
        return resolved
    # Of strings it has programs that no signature of ids would verify.
    if sizes is not None and not takes_strings(encode):
        (encode,) = compile_signatures([encode], sizes)
    return [*resolved, encode]


def _is_sequence_of_strings(spec: keras.InputSpec) -> bool:
    return spec.dtype == "string" and spec.shape[1:] not in ((), (1,))
