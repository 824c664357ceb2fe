"""Compares a LiteRT or ONNX file with a new conversion of its model."""

import dataclasses
import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats import litert_convert, onnx_convert
from keras_posenc.export.formats.litert_quantize import (
    calibration_of,
    refuse_loops,
)
from keras_posenc.export.formats.litert_recipe import Recipe
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.publish import working_folder, writing_to
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.progress import progress
from keras_posenc_worker import compare_files

_NAMED = 3  # differences in one remark
_RANGES = {
    "litert": "the ranges that it was calibrated to: they set the scales of "
    "activations, of biases, and of tables",
    "onnx": "the ranges that it was calibrated to: they set the scales of "
    "activations",
}


def compare_with_conversion(
    outputs: Reference,
    inspection: Inspection,
    frozen: FrozenModel,
    recipe: Recipe | None = None,
) -> tuple[list[str], list[str], list[str]]:
    """Compares a file with a new conversion of its signatures.

    Equal bytes need no further comparison. Otherwise a worker compares what
    both compute, since the file may come from anyone.

    Args:
        outputs: The model's outputs; the model cannot be run after this.
        inspection: The file.
        frozen: The models.
        recipe: The recipe that quantized a LiteRT file, if any.

    Returns:
        `different_values`, `different_graph` and `not_compared` of
        `VerificationReport`. If the graph differs, only weights that the file
        keeps unchanged or rounded are compared.

    Raises:
        ExportVerificationError: The comparison met a limit.
    """
    kind = inspection.kind
    if kind == "onnx":
        onnx_convert.require_onnx()
    signatures = outputs.signatures
    names = {each.name for each in signatures}
    others = _others(signatures, inspection)
    is_static = outputs.quantization == "int8-static"
    options: dict[str, Any] = {"kind": kind, "is_static": is_static}
    if kind == "litert":
        options |= {
            "names": sorted(names),
            "are_all": names == {*inspection.signatures},
        }
    with working_folder() as folder, writing_to(folder.parent):
        reference, weights = folder / "reference", folder / "weights.npz"
        # The conversion of one signature depends on the others in the file.
        with_others = [[*signatures, *others]] if others else []
        for converted in [*with_others, signatures]:
            try:
                _convert(
                    outputs, converted, inspection, reference, frozen, recipe
                )
            except ExportError as error:
                if converted is not signatures:
                    continue
                # Others can do more.
                return [], [f"nothing of it can be compared: {error}"], []
            if filecmp.cmp(reference, inspection.path, shallow=False):
                return [], [], []
            np.savez(weights, allow_pickle=False, **_weights(signatures))
            found = run_comparison(reference, inspection.path, weights, options)
            if found["graph"] is None:
                break
    different_values, different_graph = [], []
    if found["weights"]:
        different_values.append(
            f"missing or different weights: {some(found['weights'])}"
        )
    if found["constants"]:
        different_values.append(
            f"different numbers: {some(found['constants'])}"
        )
    not_compared = [_RANGES[kind]] if is_static else []
    if found["unsure"]:
        not_compared.append(some(found["unsure"]))
    if found["folded"]:
        not_compared.append(
            "weights that the converter folded into other numbers: "
            f"{some(found['folded'])}"
        )
    if found["graph"] is not None:
        words = f"another graph ({found['graph']})"
        if found["writer"]:
            words += f" (the file names {found['writer']} as its writer)"
        if more := sorted({*inspection.signatures} - names):
            words += (
                ". The cause may be that the file also has the signatures "
                f"{', '.join(more)}: verify all of them at once"
            )
        if (
            kind == "litert"
            and recipe is None
            and outputs.quantization not in (None, BY_KERAS)
        ):
            words += (
                ". It is compared with a file of the mode "
                f"'{outputs.quantization}': if a recipe quantized it, which no "
                "file names, give that as `quantization` (--quantization)"
            )
        different_graph.append(words)
    return different_values, different_graph, not_compared


def run_comparison(
    reference: Path, exported: Path, weights: Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Runs `keras_posenc_worker.compare_files` in a worker.

    Args:
        reference: The file of the new conversion.
        exported: The file to compare with it.
        weights: The model's weights, as its `main` takes them.
        options: Its options.

    Returns:
        The result of its `main`.

    Raises:
        ExportVerificationError: The comparison met a limit.
    """
    size = sum(path.stat().st_size for path in (reference, exported))
    size += 4 * weights.stat().st_size
    try:
        found: dict[str, Any] = run_in_worker(
            compare_files.__name__,
            str(reference),
            str(exported.resolve()),
            str(weights),
            options,
            limits=Limits(
                memory=MEMORY + 6 * size,
                seconds=12 + size // (10 * MIB),
                timeout=600,
            ),
            prepare=[options["kind"]],
        )
    except WorkerError as error:
        raise ExportVerificationError(
            f"The comparison of '{exported}' with its model {error}"
        ) from error
    return found


def _convert(
    outputs: Reference,
    signatures: Sequence[Signature],
    inspection: Inspection,
    path: Path,
    frozen: FrozenModel,
    recipe: Recipe | None,
) -> None:
    """Writes the file that signatures are converted to.

    Raises:
        ExportError: They cannot be converted.
    """
    mode = None if outputs.quantization == BY_KERAS else outputs.quantization
    batches: Mapping[str, Any] = {}
    if mode == "int8-static":
        batches = calibration_of(outputs)
    if inspection.kind == "onnx":
        (signature,) = signatures
        onnx_convert.convert(
            signature, path, frozen, mode, batches.get(signature.name, ())
        )
        return
    if mode == "int8-static":
        refuse_loops(signatures)
    with progress(verbose=0):
        litert_convert.convert(
            signatures,
            recipe or mode,
            batches,
            allow_flex=bool(inspection.foreign_operators),
            frozen=frozen,
            path=path,
        )


def _others(
    signatures: Sequence[Signature], inspection: Inspection
) -> list[Signature]:
    """Returns signatures for the file's further ones, where inputs agree.

    The converter writes a signature differently if another one of the same
    model shares its constants, so both are converted together. Nothing is known
    to calibrate them with.
    """
    by_inputs = {frozenset(each.specs): each for each in signatures}
    names = {each.name for each in signatures}
    found = []
    for name, sides in inspection.signatures.items():
        known = by_inputs.get(frozenset(sides["inputs"]))
        if (
            name not in names
            and known is not None
            and inspection.quantization != "int8-static"
        ):
            specs = {
                key: keras.InputSpec(
                    dtype=spec.dtype, shape=sides["inputs"][key].shape
                )
                for key, spec in known.specs.items()
            }
            found.append(dataclasses.replace(known, name=name, specs=specs))
    return found


def _weights(signatures: Sequence[Signature]) -> dict[str, Any]:
    variables = {
        id(variable): variable
        for signature in signatures
        for variable in signature.model.weights
    }
    found: dict[str, Any] = {}
    for variable in variables.values():
        name = f"{compare_files.PREFIX}{variable.path}"
        if name in found:
            name += f" ({len(found)})"
        found[name] = keras.ops.convert_to_numpy(variable)
    return found


def some(words: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + f", and {more} more" * (more > 0)
