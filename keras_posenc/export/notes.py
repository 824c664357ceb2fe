"""Sentences of a report on the model, its test inputs and its file."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.compare import has_nan
from keras_posenc.export.probes.every_id import untried_ids
from keras_posenc.export.probes.generate import Probe, has_many_weights
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import describe_example
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import called_for_training, layers_within

AGAINST_NAN = (
    "Change the model so that it gives a number: GlobalAveragePooling1D "
    "divides by zero where all steps are masked, and kp.Pooling1D('mean') "
    "gives zeros"
)
_WITHOUT_STRINGS = {"litert": "LiteRT", "onnx": "ONNX"}


def notes(reference: Reference, inspection: Inspection) -> Iterator[str]:
    """Yields what a user should know of an exported model."""
    if reference.quantization in MODES and inspection.quantization is None:
        yield (
            f"{reference.quantization} quantized nothing: no weight of at "
            "least 1,024 numbers is in a product or a lookup. Leave out "
            "`quantization` (--quantization)"
        )
    for signature in reference.signatures:
        kind = _WITHOUT_STRINGS.get(inspection.kind)
        if signature.strings is not None and kind is not None:
            yield _cut(signature, kind)
        for name, own in signature.own_names.items():
            yield (
                f"output {own} is named {name} in the file: an input has the "
                f"name {own}, and names in ONNX are unique"
            )
        yield from _fixed_shapes(signature, inspection)
        yield from _sizes(signature, reference)
    untried = {each.name: untried_ids(each) for each in reference.signatures}
    if names := [name for name, count in untried.items() if count]:
        yield (
            f"not each of {units.count(max(untried.values()), 'id')} was run, "
            f"which would take long, in {', '.join(names)}"
        )
    yield from reference.notes
    of_nan = (x for x in reference.usual if has_nan(x.outputs))
    for probe in itertools.islice(of_nan, 1):
        yield _of_nan(probe)
    models = [signature.model for signature in reference.signatures]
    if drawn := dict.fromkeys(
        x for y in models for x in called_for_training(y)
    ):
        yield (
            "called with training=True in the model, which neither "
            f"model.predict nor the file does: {', '.join(drawn)}"
        )


def _sizes(signature: Signature, reference: Reference) -> Iterator[str]:
    """Yields the sizes of test inputs, where they are small or few."""
    name, spec = max(
        signature.specs.items(), key=lambda item: item[1].shape.count(None)
    )
    free = [axis for axis, size in enumerate(spec.shape) if axis and not size]
    shapes = [
        [probe.inputs[name].shape[axis] for axis in free]
        for probe in reference.usual
        if probe.signature == signature.name and not probe.is_sample
    ]
    if not free or not shapes:
        return
    if signature.grid_axes or has_many_weights(signature):
        sizes = dict.fromkeys(" x ".join(map(str, shape)) for shape in shapes)
        yield (
            f"{signature.name} was run on inputs of the sizes "
            f"{', '.join(sizes)}. For larger ones give `max_length` "
            "(--max-length)"
        )
        return
    longest = max(size for shape in shapes for size in shape)
    for layer in layers_within(signature.model):
        is_table = type(layer).__name__ == "PositionEmbedding"
        size = getattr(layer, "sequence_length", 0) if is_table else 0
        if isinstance(size, int) and longest < size:
            yield (
                f"{layer.name} has {size:,} positions, of which {longest:,} "
                f"were run: give `max_length={size}` (--max-length {size})"
            )


def _cut(signature: Signature, kind: str) -> str:
    """Returns what an application must compute of texts or other values."""
    strings = signature.strings
    assert strings is not None
    made = {name: signature.specs[name] for name in strings.layers}
    are_ids = all("int" in spec.dtype for spec in made.values())
    what = "what lookups return, not the values"
    if any(x.dtype == "string" for x in strings.signature.specs.values()):
        what = f"{'token ids' if are_ids else 'numbers'}, not strings"
    inputs = ", ".join(
        f"{name} ({spec.dtype} {tuple(spec.shape)})"
        + f" as model.get_layer('{strings.layers[name]}') does"
        * (strings.layers[name] is not None)
        for name, spec in made.items()
    )
    text = (
        f"{signature.name} takes {what}: {kind} has no tables. The application "
        f"must make {inputs}"
    )
    more = Offers.of(strings.signature.model).ids_note
    return f"{text}. {more}" if more and are_ids else text


def _fixed_shapes(
    signature: Signature, inspection: Inspection
) -> Iterator[str]:
    """Yields the inputs of one shape whose model takes any."""
    inputs = inspection.signatures[signature.name]["inputs"]
    for name, spec in signature.specs.items():
        shape, wanted = inputs[name].shape, tuple(spec.shape)
        if shape is None or len(shape) != len(wanted):
            continue
        if any(
            size is not None and own is None
            for size, own in zip(shape, wanted, strict=True)
        ):
            yield (
                f"{signature.name} takes only the shape {shape} of {name}, and "
                f"the model {wanted}: if that is intended, give the export's "
                "`signatures` (--signature)"
            )


def _of_nan(probe: Probe) -> str:
    """Returns that the model gives NaN, and for which example."""
    output: Any = next(x for x in probe.outputs.values() if has_nan({"": x}))
    example = describe_example(
        probe.inputs, output, np.argwhere(np.isnan(output))[0]
    )
    remedy = AGAINST_NAN
    if has_nan(probe.inputs):
        remedy = "These inputs hold NaN themselves: give numbers as samples"
    return f"the model itself gives NaN for {example}. {remedy}"
