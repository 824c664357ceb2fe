"""MODEL_CARD.md, which tells a server's operator how to call a version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_posenc.export import units
from keras_posenc.export.formats.savedmodel_serving import (
    BATCHING_FILE,
    is_padded_wrongly,
)
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.labels import meaning_of
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import DEFAULT, Signature

if TYPE_CHECKING:
    from keras_posenc.export.formats.saved_model import SavedModel

CARD_FILE = "MODEL_CARD.md"
_MOST_NUMBERS = 1000  # of a request that is quoted
_SIGNATURES = {
    DEFAULT: "The model itself.",
    "from_ids": "The model from token ids.",
}
_INPUTS = {
    IDS: "token ids; ids at or after the example's length count as padding",
    LENGTHS: "number of real ids of each example; at most all of them",
}
_PAGE = Path(__file__).with_suffix(".txt")


def model_card(
    format: "SavedModel",
    inspection: Inspection,
    reference: Reference | None,
    report: VerificationReport | None,
) -> str:
    """Returns the page in Markdown."""
    import tensorflow as tf

    signatures = format.signatures
    operators, imports = "It needs only TensorFlow's own operators.", ""
    if inspection.foreign_operators:
        operators = (
            "It needs operators that TensorFlow Serving has built in, but "
            f"TensorFlow lacks: {', '.join(inspection.foreign_operators)}. In "
            "Python, `import tensorflow_text` before `tf.saved_model.load`: it "
            "registers them."
        )
        imports = "import tensorflow_text\n"
    verified = "Not verified: it was exported with `verify=False`."
    if report is not None:
        verified = (
            "A fresh process without Keras reproduced the model's outputs "
            "before this version appeared: "
            f"{units.count(len(report.cases), 'case')}, largest difference "
            f"{report.largest_difference:.2g} (allowed {report.tolerance:.2g})."
        )
    examples = [_example(each, reference) for each in signatures]
    page = _PAGE.read_text(encoding="utf-8").format(
        name=format.name,
        size=units.size(inspection.size_bytes),
        weights=units.size(inspection.weight_bytes),
        operators=operators,
        tensorflow=tf.__version__,
        keras=keras.__version__,
        verified=verified,
        serving="\n".join(_serving(format)),
        signatures="\n\n".join(
            _signature(format, signature, inspection, example)
            for signature, example in zip(signatures, examples, strict=True)
        ),
        imports=imports,
        signature=signatures[0].name,
        inputs=", ".join(
            f'{name}=tf.constant("a text", shape={value.shape})'
            if value.dtype == object
            else f'{name}=tf.ones({value.shape}, "{value.dtype}")'
            for name, value in examples[0].items()
        ),
    )
    if signatures[0].has_serve:
        page += (
            "\n`loaded.serve` takes and returns what the model does, as in "
            "Keras's exports.\n"
        )
    return page


def _serving(
    format: "SavedModel",
) -> Iterator[str]:
    yield (
        f"- Warm-up: {len(format.requests)} requests, which the server replays "
        "before it serves this version; the verification replayed them."
        if format.requests
        else "- Warm-up: none."
    )
    if format.batching is None:
        yield f"- Batching: no `{BATCHING_FILE}`."
    else:
        yield (
            f"- Batching: `{BATCHING_FILE}`, read under `--enable_batching "
            "--enable_per_model_batching_parameters`. A request may have "
            f"{format.batching['max_batch_size']:,} examples; the server "
            "rejects larger ones with 400 (INVALID_ARGUMENT)."
        )
    has_lengths = any(LENGTHS in each.specs for each in format.signatures)
    wrong = [f"`{x.name}`" for x in format.signatures if is_padded_wrongly(x)]
    if wrong:
        better = "`from_ids` with `lengths`" if has_lengths else "text"
        yield (
            "- **With batching, examples of different lengths give wrong "
            f"outputs in {', '.join(wrong)}**: the server pads each request "
            "with its first element, not with padding. Send examples of one "
            f"length, or send {better}."
        )
    if has_lengths:
        yield (
            "- Send `from_ids` at least one id per example, with length 0 for "
            "an empty text: the server does not pad empty examples."
        )


def _signature(
    format: "SavedModel",
    signature: Signature,
    inspection: Inspection,
    example: Inputs,
) -> str:
    """Returns the section on a signature: its tensors, and a request."""
    own = Offers.of(signature.model).card
    rows = ["| | name | dtype and shape | meaning |", "|---|---|---|---|"]
    for side, found in inspection.signatures[signature.name].items():
        for tensor, info in found.items():
            known = _INPUTS.get(tensor)
            if side == "outputs":
                known = meaning_of(format.labels, tensor)
            meaning = known or f"the model's {side[:-1]}"
            meaning = own.get(side, {}).get(tensor, meaning)
            rows.append(f"| {side[:-1]} | `{tensor}` | {info} | {meaning} |")
    parts = [
        f"## `{signature.name}`",
        own.get("signature")
        or _SIGNATURES.get(signature.name, "A signature given to the export."),
        "\n".join(rows),
    ]
    if sum(map(np.size, example.values())) <= _MOST_NUMBERS:
        inputs = {key: each.tolist() for key, each in example.items()}
        body = {"signature_name": signature.name, "inputs": inputs}
        parts.append(
            "```sh\ncurl http://localhost:8501/v1/models/"
            f"{format.name}:predict -d '{json.dumps(body)}'\n```"
        )
    return "\n\n".join(parts)


def _example(signature: Signature, reference: Reference | None) -> Inputs:
    """Returns the smallest generated inputs that the model was run on.

    Samples are not quoted: they may be private.
    """
    shapes = signature.shapes(1, 1)
    generated = [
        {name: value.shape for name, value in probe.inputs.items()}
        for probe in (reference.usual if reference is not None else ())
        if probe.signature == signature.name and not probe.is_sample
    ]
    if generated:
        shapes = min(
            generated, key=lambda each: sum(map(np.prod, each.values()))
        )
    return {
        name: np.full(shapes[name], "a text", object)
        if spec.dtype == "string"
        else np.ones(shapes[name], spec.dtype)
        for name, spec in signature.specs.items()
    }
