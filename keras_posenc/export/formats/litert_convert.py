"""Converts signatures to LiteRT with TensorFlow's converter."""

import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats import litert_quantize as modes
from keras_posenc.export.formats.litert_file import variables_in, write
from keras_posenc.export.formats.litert_operators import REWRITTEN
from keras_posenc.export.formats.litert_recipe import Recipe
from keras_posenc.export.formats.litert_round import SMALLEST
from keras_posenc.export.formats.litert_sizes import compute_sizes_ahead
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.graphs.decompose import decompose
from keras_posenc.export.graphs.keras_int8 import int8_in_floats
from keras_posenc.export.graphs.writing import write_saved_model
from keras_posenc.export.operators import lacking, of_python
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.from_model import of_one_example
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import (
    Limits,
    WorkerError,
    spare_worker,
)
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import working_folder, writing_to
from keras_posenc_worker import codec, convert_litert

# The SavedModel is this process's own. A large one takes minutes.
_CALIBRATION = (
    ". It cannot be calibrated with NaN or infinity, and no loop can, as a "
    "recurrent layer has: give finite `representative` inputs, build the layer "
    "with unroll=True and its input with a fixed length, or give "
    "`quantization='int8', representative=None` (--quantization int8)"
)
_UNLIMITED = Limits(memory=None, seconds=None, file=2**40, timeout=2**16)


def convert(
    signatures: Sequence[Signature],
    quantization: str | Recipe | None,
    representative: Mapping[str, Sequence[Inputs]],
    allow_flex: bool,
    frozen: FrozenModel,
    path: Path,
    *,
    in_order: bool = True,
) -> list[str]:
    """Converts signatures to a LiteRT file.

    Args:
        signatures: The signatures. Layers of Keras's int8 compute in floats
            from then on, until the models are no longer frozen.
        quantization: The mode, or a recipe, or None.
        representative: Batches to calibrate each signature with, by its name.
        allow_flex: Whether operators of TensorFlow's own may remain.
        frozen: The models.
        path: The file that is written.
        in_order: Whether inputs and outputs have the model's order. MediaPipe
            needs the converter's.

    Returns:
        The paths of matrices and tables that quantization leaves in float32,
        though they are large enough.

    Raises:
        ExportError: The model needs operators that LiteRT lacks, or it cannot
            be written.
    """
    # The converter writes signatures sorted, but shares their constants in the
    # given order. Sorted input makes the bytes reproducible.
    signatures = sorted(signatures, key=lambda each: each.name)
    int8_in_floats(signatures, frozen)
    batches = [
        (name, inputs)
        for name, given in representative.items()
        for inputs in given
    ]
    with working_folder() as folder:
        saved_model = folder / "saved_model"
        functions = write_saved_model(signatures, saved_model)
        with _edited(saved_model) as graphs:
            for each in graphs:
                decompose((), each.library, REWRITTEN, REWRITTEN)
        request = {
            "saved_model": str(saved_model),
            "signatures": [signature.name for signature in signatures],
            "allowed": allow_flex,
            "batches": batches,
        }
        with writing_to(folder.parent):
            codec.write(folder, "request", request)
        error = _run_converter(folder, bool(batches))
        if error is not None:
            # Only then, since the converter fuses some of these operators.
            needed = [*itertools.chain(*_needed(error).values())]
            with _edited(saved_model) as graphs:
                is_another = any(
                    [decompose((), each.library, needed) for each in graphs]
                )
            if is_another:
                error = _run_converter(folder, bool(batches))
        if error is not None:
            with _edited(saved_model) as graphs:
                named = {
                    node.op: node.name
                    for graph in graphs
                    for function in graph.library.function
                    for node in function.node_def
                }
            raise _conversion_error(
                error, signatures, named, _CALIBRATION if batches else ""
            )
        content = (folder / "model.tflite").read_bytes()
    model = modes.quantized(content, quantization)
    compute_sizes_ahead(model)
    for signature in signatures if in_order else ():
        outputs = functions[signature.name].structured_outputs
        _sort_as_model(model, signature, [*outputs])
    with writing_to(path.parent):
        write(model, path)
    if quantization is None:
        return []
    variables = [each for s in signatures for each in s.model.weights]
    found = variables_in(model, variables).values()
    large = (each.path for each in found if math.prod(each.shape) >= SMALLEST)
    return list(dict.fromkeys(large))


def _run_converter(folder: Path, is_calibrated: bool) -> str | None:
    """Runs the converter in a worker, and returns its error or None."""
    try:
        with spare_worker(convert_litert.__name__) as worker:
            error: str | None = worker.run(str(folder), limits=_UNLIMITED)
    except WorkerError as crash:
        raise ExportError(
            f"LiteRT's converter {crash}" + is_calibrated * _CALIBRATION
        ) from crash
    return error


def _sort_as_model(
    model: Any, signature: Signature, outputs: Sequence[str]
) -> None:
    """Gives a signature's inputs and outputs the order of the model's.

    TensorFlow has sorted them by name, and apps that run a file without its
    signatures take them by position.
    """
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


_FLEX = (
    "With `allow_flex=True, verify=False` (--allow-flex --no-verify) {what} as "
    "TensorFlow's own, in a runtime with the Flex delegate: verify the file "
    "where there is one"
)


def _needed(message: str) -> dict[str, list[str]]:
    """Returns the operators that LiteRT lacks, by who has them."""
    return {
        kind: sorted(set(re.split(r",\s*", found[1].strip())))
        for kind in ("TF Select", "Custom")
        if (found := re.search(rf"{kind} ops: ([^\n]+)", message))
    }


def _conversion_error(
    message: str,
    signatures: Sequence[Signature],
    named: Mapping[str, str],
    remedy: str,
) -> ExportError:
    needed = _needed(message)
    layers = [
        layer
        for signature in signatures
        for layer in [*layers_within(signature.model)][1:]
    ]
    if "TF Select" in needed:
        told = lacking(needed["TF Select"], named, layers)
        if not of_python(needed["TF Select"]):
            told += f". {_FLEX.format(what='they run')}"
        return ExportError(
            f"The model needs operators that LiteRT does not have: {told}"
        )
    if "Custom" in needed:
        return ExportError(
            "The model needs operators that neither LiteRT nor its Flex "
            f"delegate has: {lacking(needed['Custom'], named, layers)}"
        )
    if "TensorList" in message:
        if all(
            spec.shape[0] is not None
            for signature in signatures
            for spec in signature.specs.values()
        ):
            return ExportError(
                "The model has a loop that LiteRT's converter does not take, "
                "as of keras.ops.scan: write it as a Python loop over a known "
                f"length. {_FLEX.format(what='the loop runs')}"
            )
        return ExportError(
            "The model has a loop over its sequence, as a recurrent layer has, "
            "and loops in LiteRT need a fixed batch: give "
            f"{of_one_example(signatures)}. "
            f"{_FLEX.format(what='the loop runs')}"
        )
    reason = message.splitlines()[0]
    if found := re.search(r"'tfl\.(\w+)' op ([^\n]+)", message):
        reason = f"operator {found[1]} {found[2]}"
    return ExportError(
        f"LiteRT's converter refuses the model: {reason}{remedy}"
    )


@contextlib.contextmanager
def _edited(saved_model: Path) -> Iterator[list[Any]]:
    """Yields the graphs of a SavedModel, and writes them at the end."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = saved_model / "saved_model.pb"
    message = saved_model_pb2.SavedModel()
    message.ParseFromString(file.read_bytes())
    yield [each.graph_def for each in message.meta_graphs]
    file.write_bytes(message.SerializeToString())
