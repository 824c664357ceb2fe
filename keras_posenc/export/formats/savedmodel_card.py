"""MODEL_CARD.md, which tells a server's operator how to call a version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import keras
import numpy as np

from keras_posenc.export import units
from keras_posenc.export.formats.savedmodel_serving import is_padded_wrongly
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.signature import Signature

CARD_FILE = "MODEL_CARD.md"
_MOST_NUMBERS = 1000  # of a request that is quoted
_PAGE = Path(__file__).with_suffix(".txt")


def model_card(
    format: Any,  # the `SavedModel`
    inspection: Inspection,
    reference: Reference | None,
    report: VerificationReport | None,
) -> str:
    """Returns the page in Markdown."""
    import tensorflow as tf

    return _PAGE.read_text(encoding="utf-8").format(
        name=format.name,
        size=units.size(inspection.size_bytes),
        weights=units.size(inspection.weight_bytes),
        tensorflow=tf.__version__,
        keras=keras.__version__,
        facts="\n".join(f"- {x}" for x in _facts(format, report)),
        signatures="\n\n".join(
            _signature(format.name, each, inspection, reference)
            for each in format.signatures
        ),
        imports="import tensorflow_text\n" * bool(inspection.foreign_operators),
        signature=format.signatures[0].name,
    )


def _facts(format: Any, report: VerificationReport | None) -> Iterator[str]:
    if report is None:
        yield "Not verified: it was exported with `verify=False`."
    else:
        yield (
            "Verified in a process without Keras: "
            f"{units.count(len(report.cases), 'case')}, largest difference "
            f"{report.largest_difference:.2g} (allowed {report.tolerance:.2g})."
        )
    if format.labels is not None:
        names = json.dumps(format.labels, ensure_ascii=False)
        yield f"Classes, in the order of the scores: {names}."
    yield f"Warm-up requests: {len(format.requests)}."
    if format.batching is not None:
        most = format.batching["max_batch_size"]
        yield f"Batching: the server rejects more than {most:,} examples."
    if wrong := [x.name for x in format.signatures if is_padded_wrongly(x)]:
        yield (
            "**With batching, examples of different lengths give wrong "
            f"outputs in {', '.join(wrong)}**: send examples of one length, "
            "or send text, or `from_ids` with `lengths`."
        )


def _signature(
    model_name: str,
    signature: Signature,
    inspection: Inspection,
    reference: Reference | None,
) -> str:
    rows = ["| | name | dtype and shape |", "|---|---|---|"]
    for side, found in inspection.signatures[signature.name].items():
        for tensor, info in found.items():
            rows.append(f"| {side[:-1]} | `{tensor}` | {info} |")
    shapes = signature.shapes(1, 1)
    for probe in () if reference is None else reference.usual:
        # Samples may be private.
        if probe.signature == signature.name and not probe.is_sample:
            shapes = {name: value.shape for name, value in probe.inputs.items()}
            break
    inputs = {
        name: np.full(
            shapes[name], "a text" if spec.dtype == "string" else 1
        ).tolist()
        for name, spec in signature.specs.items()
    }
    body = json.dumps({"signature_name": signature.name, "inputs": inputs})
    address = f"http://localhost:8501/v1/models/{quote(model_name)}:predict"
    request = f"```sh\ncurl {address} -d '{body}'\n```"
    if sum(map(np.prod, shapes.values())) > _MOST_NUMBERS:
        request = ""
    parts = [Offers.of(signature.model).card, "\n".join(rows), request]
    return "\n\n".join([f"## `{signature.name}`", *filter(None, parts)])
