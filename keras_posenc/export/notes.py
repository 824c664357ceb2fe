"""Sentences of a report on the model, its test inputs and its file."""

import itertools
from collections.abc import Iterator

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.compare import has_nan
from keras_posenc.export.probes.every_id import tables
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import describe_example
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layer_of

AGAINST_NAN = (
    "Change the model so that it gives a number: GlobalAveragePooling1D "
    "divides by zero where all steps are masked, and kp.Pooling1D('mean') "
    "gives zeros"
)


def notes(reference: Reference, inspection: Inspection) -> Iterator[str]:
    """Yields what a user should know of an exported model."""
    if reference.quantization in MODES and inspection.quantization is None:
        yield (
            f"{reference.quantization} quantized nothing: no weight of at "
            "least 1,024 numbers is in a product or a lookup. Leave out "
            "`quantization`"
        )
    kind = {"litert": "LiteRT", "onnx": "ONNX"}.get(inspection.kind)
    ran = {x.signature for x in reference.probes if x.is_of_tables}
    skipped = {}
    for signature in reference.signatures:
        if signature.strings is not None and kind is not None:
            yield _cut(signature, kind)
        for name, own in signature.own_names.items():
            yield (
                f"output {own} is named {name} in the file: an input has the "
                f"name {own}, and names in ONNX are unique"
            )
        base = signature.innermost
        sizes = [each.input_dim for each in tables(base)]
        takes_ids = any(
            "int" in spec.dtype and "mask" not in name
            for name, spec in base.specs.items()
        )
        if sizes and takes_ids and signature.name not in ran:
            skipped[signature.name] = max(sizes)
    if skipped:
        yield (
            f"not each of {units.count(max(skipped.values()), 'id')} was run, "
            f"which would take long, in {units.some([*skipped])}"
        )
    yield from reference.notes
    of_nan = (x for x in reference.usual if has_nan(x.outputs))
    for probe in itertools.islice(of_nan, 1):
        output = next(x for x in probe.outputs.values() if has_nan({"": x}))
        example = describe_example(
            probe.inputs, output, np.argwhere(np.isnan(output))[0]
        )
        remedy = AGAINST_NAN
        if has_nan(probe.inputs):
            remedy = "These inputs hold NaN themselves: give numbers as samples"
        yield f"the model itself gives NaN for {example}. {remedy}"


def _cut(signature: Signature, kind: str) -> str:
    """Returns what an application must compute of texts or other values."""
    strings = signature.strings
    assert strings is not None
    made = {name: signature.specs[name] for name in strings.made}
    inputs = ", ".join(
        f"{name} ({spec.dtype} {tuple(spec.shape)}), the output of layer "
        f"'{layer_of(strings.made[name]).name}'"
        for name, spec in made.items()
    )
    more = Offers.of(strings.signature.model).ids_note
    return (
        f"{signature.name} takes no strings: {kind} has none, and no lookup "
        f"tables. The application must make {inputs}"
    ) + f". {more}" * bool(more)
