"""Compares a LiteRT file with the one that its model becomes."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litert_quantize import refuse_loops
from keras_posenc.export.formats.onnx_proof import (
    altered_in,
    compare_files,
    some,
)
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.publish import working_folder, writing_to
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.progress import progress
from keras_posenc_worker.comparing import litert_comparison

_RANGES = (
    "the ranges that it was calibrated to: they set the scales of activations, "
    "of biases, and of tables"
)


def compare_with_conversion(
    reference: Reference, inspection: Inspection
) -> tuple[list[str], list[str], list[str]]:
    """Compares a file with what its signatures become when converted again.

    Args:
        reference: The model's outputs; it cannot be run any more.
        inspection: The file.

    Returns:
        What of the file is not the model's, what of its graph is not as it is
        converted here, and what could not be compared, in words. Of another
        graph only the weights that it keeps as they are, or rounded, are.

    Raises:
        ExportVerificationError: The file cannot be compared within limits.
    """
    signatures = reference.signatures
    mode = reference.quantization
    mode = None if mode == BY_KERAS else mode
    is_static = mode == "int8-static"
    others = [] if is_static else _others(signatures, inspection)
    names = [each.name for each in signatures]

    def convert_to(path: Path, of: Sequence[Signature]) -> None:
        if is_static:
            refuse_loops(of)
        batches = _calibration(reference) if is_static else {}
        with progress(verbose=0):
            content = convert(
                of,
                mode,
                batches,
                allow_flex=bool(inspection.foreign_operators),
            )
        path.write_bytes(content)

    with working_folder() as folder, writing_to(folder.parent):
        converted = folder / "reference"

        def compare(weights: Path | None = None) -> dict[str, Any]:
            return compare_with(
                converted, inspection.path, names, is_static, weights
            )

        try:
            convert_to(converted, signatures)
        except ExportError as error:  # others can do more
            return [], [f"nothing of it can be compared: {error}"], []
        found = compare()
        if found["graph"] is not None and others:
            with contextlib.suppress(ExportError):
                convert_to(converted, [*signatures, *others])
            found = compare()
        if any(found.values()):  # then by which weights
            weights = folder / "weights.npz"
            np.savez(weights, allow_pickle=False, **_weights(signatures))
            found = compare(weights)
    folded = [_RANGES] if is_static else []
    if found["unsure"]:
        folded.append(some(found["unsure"]))
    rewritten = []
    if found["graph"] is not None:
        rewritten.append(f"another graph ({found['graph']})")
        if unasked := sorted({*inspection.signatures}.difference(names)):
            # What the converter makes of one depends on the others.
            rewritten[-1] += (
                f". The cause may be that the file also has the signatures "
                f"{', '.join(unasked)}: verify all of them at once"
            )
    if found["folded"]:
        folded.append(
            "weights that the converter folded into other numbers: "
            f"{some(found['folded'])}"
        )
    return altered_in(found), rewritten, folded


def _others(
    signatures: Sequence[Signature], inspection: Inspection
) -> list[Signature]:
    """The file's other signatures, as far as they take what these do.

    Whatever they are in the file: of one model the converter writes a signature
    otherwise where another one shares its constants.
    """
    by_inputs = {frozenset(each.specs): each for each in signatures}
    names = {each.name for each in signatures}
    found = []
    for name, sides in inspection.signatures.items():
        known = by_inputs.get(frozenset(sides["inputs"]))
        if name not in names and known is not None:
            specs = {
                key: keras.InputSpec(
                    dtype=spec.dtype, shape=sides["inputs"][key].shape
                )
                for key, spec in known.specs.items()
            }
            found.append(dataclasses.replace(known, name=name, specs=specs))
    return found


def compare_with(
    reference: Path,
    artifact: Path,
    names: Sequence[str],
    is_static: bool,
    weights: Path | None = None,
) -> dict[str, Any]:
    """What `litert_comparison` returns of a file and its reference."""
    return compare_files(
        litert_comparison.__name__,
        reference,
        artifact,
        names,
        None if weights is None else str(weights),
        is_static,
        prepare=[],
        more_bytes=0 if weights is None else 4 * weights.stat().st_size,
    )


def _calibration(reference: Reference) -> Mapping[str, list[Inputs]]:
    """One batch of finite numbers for each signature."""
    found = {}
    for probe in sorted(reference.usual, key=lambda probe: probe.is_sample):
        arrays = (*probe.inputs.values(), *probe.outputs.values())
        if all(
            array.size and np.all(np.isfinite(array.astype("float64")))
            for array in arrays
        ):
            found[probe.signature] = [probe.inputs]
    for signature in reference.signatures:
        if signature.name not in found:
            raise ExportError(
                f"there is no batch of finite numbers to calibrate signature "
                f"'{signature.name}' with"
            )
    return found


def _weights(signatures: Sequence[Signature]) -> dict[str, Any]:
    """The models' weights, by their paths."""
    variables = {
        id(variable): variable
        for signature in signatures
        for variable in signature.model.weights
    }
    found: dict[str, Any] = {}
    for variable in variables.values():
        name = f"weights/{variable.path}"
        if name in found:
            name += f" ({len(found)})"
        found[name] = keras.ops.convert_to_numpy(variable)
    return found
