"""MODEL_CARD.md, which describes a version and how to call it."""

import json
import stat
from collections.abc import Mapping, Sequence
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
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.regular_files import read_regular
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.embeddings import CONTEXTUAL, MASK, POOLED
from keras_posenc.export.signatures.labels import meaning_of
from keras_posenc.export.signatures.lengths import IDS, LENGTHS
from keras_posenc.export.signatures.signature import DEFAULT, Signature

CARD_FILE = "MODEL_CARD.md"
_MOST_BYTES = 16 * 1024**2  # of a card
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
    report: VerificationReport | None,
    reference: Reference | None,
    labels: Any,
    batching: Mapping[str, Any] | None,
    warmup: int,
) -> str:
    """Returns the page in Markdown.

    Args:
        name: The model's name on a server.
        signatures: Its signatures.
        inspection: The contents of the version.
        report: The report of its verification, or None.
        reference: The outputs that it was verified with. Only invented inputs
            are quoted as examples.
        labels: The names of the classes, if they were given.
        batching: The parameters of batching, if they were written.
        warmup: The number of warm-up requests.
    """
    import tensorflow as tf

    probes = reference.usual if reference is not None else []
    parts = [
        f"# {name}",
        f"{units.size(inspection.size_bytes)}, of which weights "
        f"{units.size(inspection.weight_bytes)}. {_operators(inspection)}",
        f"Written by TensorFlow {tf.__version__} and Keras "
        f"{keras.__version__}.",
        "## Verification",
        _verification(report),
        "## Warm-up and batching",
        _serving(signatures, report, batching, warmup),
        *(
            _signature(name, signature, inspection, probes, labels)
            for signature in signatures
        ),
    ]
    return "\n\n".join(parts) + "\n"


def note_origin(folder: Path, version: int) -> None:
    """Notes in the card of a copied version which version it was."""
    card = folder / CARD_FILE
    if card.is_file():
        # The user may have edited it, in any encoding, or made it read-only.
        title, end, rest = read_regular(card, _MOST_BYTES).partition(b"\n")
        origin = b"\n**A copy of version %d.**\n" % version
        mode = card.stat().st_mode
        card.chmod(mode | stat.S_IWUSR)
        card.write_bytes(title + end + origin + rest)
        card.chmod(mode)


def _operators(inspection: Inspection) -> str:
    if not inspection.foreign_operators:
        return "It needs only TensorFlow's own operators."
    return (
        "It needs operators that TensorFlow Serving has built in, but "
        f"TensorFlow lacks: {', '.join(inspection.foreign_operators)}. In "
        "Python, `import tensorflow_text` before `tf.saved_model.load`: it "
        "registers them."
    )


def _verification(report: VerificationReport | None) -> str:
    if report is None:
        return "Not verified: it was exported with `verify=False`."
    lines = [
        "A fresh process without Keras reproduced the model's outputs before "
        "this version appeared: "
        f"{units.count(len(report.cases), 'case')}, largest "
        f"difference {report.largest_difference:.2g} (allowed "
        f"{report.tolerance:.2g}).",
        *(
            [
                "This says little about outputs that hardly vary: "
                f"{', '.join(report.constant_outputs)}."
            ]
            if report.constant_outputs
            else []
        ),
    ]
    return "\n".join(lines)


def _serving(
    signatures: Sequence[Signature],
    report: VerificationReport | None,
    batching: Mapping[str, Any] | None,
    warmup: int,
) -> str:
    lines = [
        f"- Warm-up: {warmup} requests, which the server replays before it "
        "serves this version; the verification replayed them."
        if warmup
        else "- Warm-up: none."
    ]
    if batching is None:
        lines.append(f"- Batching: no `{BATCHING_FILE}`.")
    else:
        lines.append(
            f"- Batching: `{BATCHING_FILE}`, read under `--enable_batching "
            "--enable_per_model_batching_parameters`. A request may have "
            f"{batching['max_batch_size']:,} examples; the server rejects "
            "larger ones with 400 (INVALID_ARGUMENT). To allow more, export "
            'with `batching={"max_batch_size": 256}`.'
        )
    wrong = [s.name for s in signatures if is_padded_wrongly(s)]
    if wrong:
        from_ids = any(LENGTHS in s.specs for s in signatures)
        advice = "send `from_ids` with `lengths`" if from_ids else "send text"
        lines.append(
            "- **With batching, examples of different lengths give wrong "
            f"outputs in {_code(wrong)}**: the server pads each request with "
            "its first element, not with padding. Send examples of one length, "
            f"or {advice}."
        )
    if report is not None and report.padding_matters:
        lines.append(
            "- **Padding changes this model's outputs.** Batch only examples "
            "of one length."
        )
    if any(LENGTHS in s.specs for s in signatures):
        lines.append(
            "- Send `from_ids` at least one id per example, with length 0 for "
            "an empty text: the server does not pad empty examples."
        )
    return "\n".join(lines)


def _signature(
    name: str,
    signature: Signature,
    inspection: Inspection,
    probes: Sequence[Probe],
    labels: Any,
) -> str:
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
    arrays = _example(signature, probes)
    if sum(value.size for value in arrays.values()) > _MOST_NUMBERS:
        example = {
            tensor: repr(value.tolist())
            if value.dtype == object
            else f"np.zeros({value.shape}, {value.dtype.name!r})"
            for tensor, value in arrays.items()
        }
        request = " a request is too long to be quoted here."
    else:
        example = {
            tensor: repr(value.tolist()) for tensor, value in arrays.items()
        }
        request = _rest(name, signature, arrays)
    return "\n\n".join(
        [
            f"## `{signature.name}`",
            own.get("signature")
            or _SIGNATURES.get(
                signature.name, "A signature given to the export."
            ),
            "\n".join(rows),
            f"Python, in this folder:\n\n```python\n"
            f"{_in_python(signature, example, inspection)}\n```",
            *([_serve(signature)] if signature.has_serve else []),
            f"REST:{request}",
            f"gRPC:\n\n```python\n{_grpc(name, signature, example)}\n```",
        ]
    )


def _rest(
    name: str, signature: Signature, arrays: Mapping[str, np.ndarray]
) -> str:
    body: dict[str, Any] = {
        "inputs": {tensor: value.tolist() for tensor, value in arrays.items()}
    }
    if signature.name != DEFAULT:
        body = {"signature_name": signature.name, **body}
    request = json.dumps(body, ensure_ascii=False)
    return (
        "\n\n```sh\ncurl http://localhost:8501/v1/models/"
        f"{name}:predict -d '{request}'\n```"
    )


def _numpy(example: Mapping[str, str]) -> str:
    return "import numpy as np\n" * any(
        value.startswith("np.") for value in example.values()
    )


def _in_python(
    signature: Signature, example: Mapping[str, str], inspection: Inspection
) -> str:
    inputs = ", ".join(
        f'{tensor}=tf.constant({value}, "{signature.specs[tensor].dtype}")'
        for tensor, value in example.items()
    )
    more = "import tensorflow_text\n" * bool(inspection.foreign_operators)
    return (
        f"{_numpy(example)}import tensorflow as tf\n{more}\n"
        'loaded = tf.saved_model.load(".")\n'
        f'outputs = loaded.signatures["{signature.name}"]({inputs})'
    )


def _serve(signature: Signature) -> str:
    def code(structure: Any) -> str:
        if isinstance(structure, str):
            return structure
        if isinstance(structure, Mapping):
            items = (f"{key!r}: {code(structure[key])}" for key in structure)
            return f"{{{', '.join(items)}}}"
        return f"[{', '.join(map(code, structure))}]"

    given = ", ".join(map(code, signature.arguments))
    return (
        f"`loaded.serve({given})` returns the outputs in the structure of the "
        "model's own, as in Keras's exports."
    )


def _grpc(name: str, signature: Signature, example: Mapping[str, str]) -> str:
    lines = [
        f"{_numpy(example)}import grpc, tensorflow as tf",
        "from tensorflow_serving.apis import predict_pb2",
        "from tensorflow_serving.apis import prediction_service_pb2_grpc",
        "",
        "request = predict_pb2.PredictRequest()",
        f"request.model_spec.name = {name!r}",
        f"request.model_spec.signature_name = {signature.name!r}",
        *(
            f"request.inputs[{tensor!r}].CopyFrom(tf.make_tensor_proto("
            f"{value}, tf.{signature.specs[tensor].dtype}))"
            for tensor, value in example.items()
        ),
        'channel = grpc.insecure_channel("localhost:8500")',
        "stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)",
        "outputs = stub.Predict(request, timeout=5).outputs",
    ]
    return "\n".join(lines)


def _example(
    signature: Signature, probes: Sequence[Probe]
) -> dict[str, np.ndarray]:
    """Returns the smallest inputs that verification invented; else zeros.

    Samples are not quoted: they may be private.
    """
    invented = [
        probe.inputs
        for probe in probes
        if probe.signature == signature.name and not probe.is_sample
    ]
    numbers = min(
        invented,
        key=lambda inputs: sum(v.size for v in inputs.values()),
        default={},
    )
    return {
        name: np.full(tuple(size or 1 for size in spec.shape), "a text", object)
        if spec.dtype == "string"
        else numbers.get(
            name, np.zeros([size or 1 for size in spec.shape], spec.dtype)
        )
        for name, spec in signature.specs.items()
    }


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
