"""MODEL_CARD.md, which tells a server's operator how to call a version."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from keras_posenc.export.signatures.embeddings import CONTEXTUAL, MASK, POOLED
from keras_posenc.export.signatures.labels import meaning_of
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import DEFAULT, Signature

CARD_FILE = "MODEL_CARD.md"
_MOST_NUMBERS = 1000  # of a request that is quoted

_SIGNATURES = {
    DEFAULT: "The model itself.",
    "from_ids": "The model from token ids.",
    "encode": "The embeddings that the model computes before its "
    "output. They are not what later layers make of them, such as vectors of "
    "length 1.",
}
_INPUTS = {
    IDS: "token ids; ids at or after the example's length count as padding",
    LENGTHS: "number of real ids of each example; at most all of them",
}
_OUTPUTS = {
    CONTEXTUAL: "one vector for each token; meaningless at padded positions",
    MASK: "true for tokens, false for padding",
    POOLED: "one vector for the whole text",
}


def model_card(
    name: str,
    signatures: Sequence[Signature],
    inspection: Inspection,
    reference: Reference | None,
    report: VerificationReport | None,
    labels: Any,
    batching: Mapping[str, Any] | None,
    warmup: int,
) -> str:
    """Returns the page in Markdown."""
    import tensorflow as tf

    operators = "It needs only TensorFlow's own operators."
    if inspection.foreign_operators:
        operators = (
            "It needs operators that TensorFlow Serving has built in, but "
            f"TensorFlow lacks: {', '.join(inspection.foreign_operators)}. In "
            "Python, `import tensorflow_text` before `tf.saved_model.load`: it "
            "registers them."
        )
    verified = "Not verified: it was exported with `verify=False`."
    if report is not None:
        verified = (
            "A fresh process without Keras reproduced the model's outputs "
            "before this version appeared: "
            f"{units.count(len(report.cases), 'case')}, largest difference "
            f"{report.largest_difference:.2g} (allowed {report.tolerance:.2g})."
        )
    examples = [_example(each, reference) for each in signatures]
    parts = [
        f"# {name}",
        f"{units.size(inspection.size_bytes)}, of which weights "
        f"{units.size(inspection.weight_bytes)}. {operators}",
        f"Written by TensorFlow {tf.__version__} and Keras "
        f"{keras.__version__}.",
        verified,
        "## Warm-up and batching",
        "\n".join(_serving(signatures, batching, warmup)),
        *(
            _signature(name, signature, inspection, labels, example)
            for signature, example in zip(signatures, examples, strict=True)
        ),
        "## Python",
        _in_python(signatures[0], inspection, examples[0]),
    ]
    return "\n\n".join(parts) + "\n"


def note_origin(folder: Path, version: int) -> None:
    """Notes in the card of a copied version which version it was."""
    card = folder / CARD_FILE
    if card.is_file():
        # The user may have edited it, in any encoding, or made it read-only.
        title, end, rest = card.read_bytes().partition(b"\n")
        card.unlink()
        origin = b"\n**A copy of version %d.**\n" % version
        card.write_bytes(title + end + origin + rest)


def _serving(
    signatures: Sequence[Signature],
    batching: Mapping[str, Any] | None,
    warmup: int,
) -> Iterator[str]:
    yield (
        f"- Warm-up: {warmup} requests, which the server replays before it "
        "serves this version; the verification replayed them."
        if warmup
        else "- Warm-up: none."
    )
    if batching is None:
        yield f"- Batching: no `{BATCHING_FILE}`."
    else:
        yield (
            f"- Batching: `{BATCHING_FILE}`, read under `--enable_batching "
            "--enable_per_model_batching_parameters`. A request may have "
            f"{batching['max_batch_size']:,} examples; the server rejects "
            "larger ones with 400 (INVALID_ARGUMENT)."
        )
    has_lengths = any(LENGTHS in s.specs for s in signatures)
    wrong = [f"`{s.name}`" for s in signatures if is_padded_wrongly(s)]
    if wrong:
        advice = (
            "send `from_ids` with `lengths`" if has_lengths else "send text"
        )
        yield (
            "- **With batching, examples of different lengths give wrong "
            f"outputs in {', '.join(wrong)}**: the server pads each request "
            "with its first element, not with padding. Send examples of one "
            f"length, or {advice}."
        )
    if has_lengths:
        yield (
            "- Send `from_ids` at least one id per example, with length 0 for "
            "an empty text: the server does not pad empty examples."
        )


def _signature(
    name: str,
    signature: Signature,
    inspection: Inspection,
    labels: Any,
    example: Inputs,
) -> str:
    """Returns the section on a signature: its tensors, and a request."""
    found = inspection.signatures[signature.name]
    own = Offers.of(signature.model).card
    rows = ["| | name | dtype and shape | meaning |", "|---|---|---|---|"]
    for side, meanings in (("inputs", _INPUTS), ("outputs", _OUTPUTS)):
        for tensor, info in found[side].items():
            meaning = f"the model's {side[:-1]}"
            if side == "inputs" or signature.name == "encode":
                meaning = meanings.get(tensor, meaning)
            if labels and side == "outputs":
                meaning = meaning_of(labels, tensor) or meaning
            meaning = own.get(side, {}).get(tensor, meaning)
            rows.append(f"| {side[:-1]} | `{tensor}` | {info} | {meaning} |")
    parts = [
        f"## `{signature.name}`",
        own.get("signature")
        or _SIGNATURES.get(signature.name, "A signature given to the export."),
        "\n".join(rows),
    ]
    if sum(map(np.size, example.values())) <= _MOST_NUMBERS:
        body: dict[str, Any] = {"signature_name": signature.name}
        body["inputs"] = {key: each.tolist() for key, each in example.items()}
        parts.append(
            "```sh\ncurl http://localhost:8501/v1/models/"
            f"{name}:predict -d '{json.dumps(body)}'\n```"
        )
    return "\n\n".join(parts)


def _example(signature: Signature, reference: Reference | None) -> Inputs:
    """Returns the smallest generated inputs that the model was run on.

    Samples are not quoted: they may be private.
    """
    generated = [
        probe.inputs
        for probe in (reference.usual if reference is not None else ())
        if probe.signature == signature.name and not probe.is_sample
    ]
    shapes = signature.shapes(1, 1)
    if generated:
        least = min(
            generated, key=lambda inputs: sum(v.size for v in inputs.values())
        )
        shapes = {name: value.shape for name, value in least.items()}
    return {
        name: np.full(shapes[name], "a text", object)
        if spec.dtype == "string"
        else np.ones(shapes[name], spec.dtype)
        for name, spec in signature.specs.items()
    }


def _in_python(
    signature: Signature, inspection: Inspection, example: Inputs
) -> str:
    """Returns the section on Python, of the first signature."""
    inputs = ", ".join(
        f'{name}=tf.constant("a text", shape={value.shape})'
        if value.dtype == object
        else f'{name}=tf.ones({value.shape}, "{value.dtype}")'
        for name, value in example.items()
    )
    more = "import tensorflow_text\n" * bool(inspection.foreign_operators)
    code = (
        f"import tensorflow as tf\n{more}\n"
        'loaded = tf.saved_model.load(".")\n'
        f'outputs = loaded.signatures["{signature.name}"]({inputs})'
    )
    text = f"In this folder:\n\n```python\n{code}\n```"
    if signature.has_serve:
        text += (
            "\n\n`loaded.serve` takes and returns what the model does, as in "
            "Keras's exports."
        )
    return text
