"""Converts signatures to LiteRT with TensorFlow's converter."""

import math
import mmap
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.litert_edit import compute_sizes_ahead
from keras_posenc.export.formats.litert_file import read, variables_in, write
from keras_posenc.export.formats.litert_operators import REWRITTEN
from keras_posenc.export.formats.litert_quantize import Recipe, Samples, rounded
from keras_posenc.export.formats.litert_round import SMALLEST
from keras_posenc.export.graphs.decompose import FUNCTIONS, Functions, decompose
from keras_posenc.export.graphs.writing import write_saved_model
from keras_posenc.export.operators import lacking
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import WorkerError, spare_worker
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import working_folder, writing_to
from keras_posenc_worker import convert_litert
from keras_posenc_worker.process import give_back


def convert(
    signatures: Sequence[Signature],
    quantization: str | Recipe | None,
    path: Path,
    samples: Samples | None = None,
    in_order: bool = True,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[str]:
    """Converts signatures to a file; returns weights that stay in float32.

    `meanwhile` is called while the converter works, in a process of its own.
    """
    # The converter writes signatures sorted, but shares their constants in the
    # given order. Sorted input makes the bytes reproducible.
    signatures = sorted(signatures, key=lambda each: each.name)
    with working_folder() as folder:
        saved_model = folder / "saved_model"
        functions = write_saved_model(signatures, saved_model)
        named = _decomposed(saved_model, REWRITTEN)
        names, file = [*functions], folder / "model.tflite"
        error = _run_converter(saved_model, names, file, meanwhile)
        if error is not None and (needed := {*_needed(error)} & {*FUNCTIONS}):
            # Only now, since the converter fuses some of these operators.
            others = {name: FUNCTIONS[name] for name in needed}
            named = _decomposed(saved_model, others)
            error = _run_converter(saved_model, names, file, meanwhile)
        if error is not None:
            raise _conversion_error(error, signatures, named)
        with file.open("rb") as opened:  # its weights need not be in memory
            content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    model = rounded(read(content), quantization, samples)
    compute_sizes_ahead(model)
    for signature in signatures if in_order else ():
        outputs = functions[signature.name].structured_outputs
        _sort_as_model(model, signature, [*outputs])
    with writing_to(path.parent):
        write(model, path)
    if quantization is None:
        return []
    variables = [each for s in signatures for each in s.model.weights]
    kept = variables_in(model, variables).values()
    large = (each.path for each in kept if math.prod(each.shape) >= SMALLEST)
    return list(dict.fromkeys(large))


def _run_converter(
    saved_model: Path,
    names: Sequence[str],
    file: Path,
    meanwhile: Callable[[], object],
) -> str | None:
    given = str(saved_model), names, str(file)
    give_back()  # the converter needs the most memory of all steps
    try:
        with spare_worker(convert_litert.__name__) as worker:
            worker.call("main", *given)  # a large model takes minutes
            meanwhile()
            error: str | None = worker.response()
    except WorkerError as crash:
        raise ExportError(f"LiteRT's converter {crash}") from crash
    return error


def _sort_as_model(
    model: Any, signature: Signature, outputs: Sequence[str]
) -> None:
    """Gives inputs and outputs the model's order; apps use their positions."""
    (found,) = (
        each
        for each in model.signatureDefs
        if each.signatureKey.decode() == signature.name
    )

    def tensors(entries: list[Any], names: Sequence[str]) -> list[int]:
        entries.sort(key=lambda entry: names.index(entry.name.decode()))
        return [entry.tensorIndex for entry in entries]

    graph = model.subgraphs[found.subgraphIndex]
    graph.inputs = tensors(found.inputs, [*signature.specs])
    graph.outputs = tensors(found.outputs, outputs)


def _needed(message: str) -> list[str]:
    """Returns the operators that LiteRT lacks, by the converter's error."""
    found = re.findall(r"(?:TF Select|Custom) ops: ([^\n]+)", message)
    return sorted(
        {x for each in found for x in re.split(r",\s*", each.strip())}
    )


def _conversion_error(
    message: str, signatures: Sequence[Signature], named: Mapping[str, str]
) -> ExportError:
    if needed := _needed(message):
        layers = [
            layer
            for signature in signatures
            for layer in [*layers_within(signature.model)][1:]
        ]
        return ExportError(
            "The model needs operators that LiteRT does not have: "
            f"{lacking(needed, named, layers)}"
        )
    if "TensorList" in message:
        return ExportError(
            "The model has a loop that LiteRT's converter does not take. Loops "
            "need a fixed batch, such as `signatures={'serving_default': "
            "(model, {'x': (1, 64)})}`; a loop like keras.ops.scan becomes a "
            "Python loop over a known length"
        )
    reason = message.splitlines()[0]
    if found := re.search(r"'tfl\.(\w+)' op ([^\n]+)", message):
        reason = f"operator {found[1]} {found[2]}"
    return ExportError(f"LiteRT's converter refuses the model: {reason}")


def _decomposed(saved_model: Path, functions: Functions) -> dict[str, str]:
    """Edits the graphs of a file; returns a node's name for each operator."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model / "saved_model.pb"
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(file.read_bytes())
    libraries = [each.graph_def.library for each in message.meta_graphs]
    for library in libraries:
        decompose(library, functions)
    file.write_bytes(message.SerializeToString())
    return {
        node.op: node.name
        for library in libraries
        for function in library.function
        for node in function.node_def
    }
