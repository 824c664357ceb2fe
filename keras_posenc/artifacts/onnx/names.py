"""Names of outputs, of which an ONNX graph has each once."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from keras_posenc.artifacts.signatures.naming import named_outputs, output_of
from keras_posenc.artifacts.signatures.signature import Signature


def with_distinct_names(signatures: Sequence[Signature]) -> list[Signature]:
    """Signatures whose outputs have no names of inputs.

    To ONNX these are one tensor. The output `ids` of a model that takes `ids`
    is `output_ids`.
    """
    return [*map(_with_distinct_names, signatures)]


def _with_distinct_names(signature: Signature) -> Signature:
    whole = signature.whole
    model = signature.model if whole is None else whole.signature.model
    if not getattr(model, "inputs", None):
        return signature  # its outputs are known when it is called
    taken = {*signature.specs, *named_outputs(model, output_of(model))}
    renamed: dict[str, str] = {}
    for name in named_outputs(model, output_of(model)):
        if name in signature.specs:
            new = f"output_{name}"
            while new in taken:
                new += "_"
            taken.add(new)
            renamed[name] = new
    if not renamed:
        return signature

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {
            renamed.get(name, name): value
            for name, value in signature.call(tensors).items()
        }

    return dataclasses.replace(
        signature,
        call=call,
        own_names={new: name for name, new in renamed.items()},
    )
