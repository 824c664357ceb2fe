"""The proof that a LiteRT file is what its model becomes, number for number.

Answers alone do not tell an embedding that nobody asked for, nor the last bits
of a weight.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.expectations.allowance import BY_KERAS
from keras_posenc.artifacts.expectations.expectations import Expectations
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.ground.errors import (
    ExportError,
    ExportVerificationError,
)
from keras_posenc.artifacts.ground.staging import working_folder, writing_to
from keras_posenc.artifacts.inspection.inspection import Inspection
from keras_posenc.artifacts.isolated.comparing import litert_comparison
from keras_posenc.artifacts.litert.conversion import convert
from keras_posenc.artifacts.litert.quantization import refuse_loops
from keras_posenc.artifacts.processes.isolation import (
    MEMORY,
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.progress import progress

_NAMED = 3  # of what differs
_RANGES = (
    "the ranges of numbers that it was calibrated to, which scale what comes "
    "into its products, its biases, and the rows that tables are rounded by"
)


def compare_with_file(
    expectations: Expectations, inspection: Inspection
) -> tuple[list[str], list[str], list[str]]:
    """Compares a file with what its signatures become when converted again.

    Args:
        expectations: The model's answers; of it nothing can be asked any more.
        inspection: The file.

    Returns:
        What of the file is not the model's, what of its graph is not as it is
        converted here, and what could not be compared, in words. Of another
        graph only the weights that it keeps as they are, or rounded, are.

    Raises:
        ExportVerificationError: The file cannot be compared within limits.
    """
    signatures = expectations.signatures
    mode = expectations.quantization
    mode = None if mode == BY_KERAS else mode
    is_static = mode == "int8-static"
    others = [] if is_static else _others(signatures, inspection)
    with working_folder() as folder, writing_to(folder.parent):
        reference = folder / "reference.tflite"

        def write(signatures: Sequence[Signature]) -> None:
            if is_static:
                refuse_loops(signatures)
            batches = _calibration(expectations) if is_static else {}
            with progress(verbose=0):
                content = convert(
                    signatures,
                    mode,
                    batches,
                    allow_flex=bool(inspection.foreign_operators),
                )
            reference.write_bytes(content)

        def compare(weights: str) -> dict[str, Any]:
            return _compared(
                inspection, reference, signatures, weights, is_static
            )

        try:
            write(signatures)
            found = compare("")
            if found["graph"] is not None and others:
                write([*signatures, *others])
                found = compare("")
        except ExportVerificationError:
            raise
        except ExportError as error:  # others can do more
            return [], [f"nothing of it can be compared: {error}"], []
        if any(found.values()):  # then by which weights
            weights = folder / "weights.npz"
            np.savez(weights, allow_pickle=False, **_weights(signatures))
            found = compare(str(weights))
    altered = []
    if found["weights"]:
        altered.append(
            f"it does not hold, as the model does, {_some(found['weights'])}"
        )
    if found["constants"]:
        altered.append(f"numbers of its own: {_some(found['constants'])}")
    folded = [_RANGES] if is_static else []
    if found["unsure"]:
        folded.append(_some(found["unsure"]))
    rewritten = []
    if found["graph"] is not None:
        rewritten.append(f"another graph ({found['graph']})")
        names = {each.name for each in signatures}
        if unasked := sorted({*inspection.signatures} - names):
            # What the converter makes of one depends on the others.
            rewritten[-1] += (
                f", which may be since the file has {', '.join(unasked)}, too: "
                "verify all its signatures at once"
            )
    if found["folded"]:
        folded.append(
            "weights that became part of other numbers: "
            f"{_some(found['folded'])}"
        )
    return altered, rewritten, folded


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


def _compared(
    inspection: Inspection,
    reference: Path,
    signatures: Sequence[Signature],
    weights: str,
    is_static: bool,
) -> dict[str, Any]:
    size = inspection.size_bytes + reference.stat().st_size
    size += 4 * Path(weights).stat().st_size if weights else 0
    try:
        found: dict[str, Any] = json.loads(
            run_isolated(
                litert_comparison.__file__,
                str(reference),
                str(inspection.path.resolve()),
                json.dumps([each.name for each in signatures]),
                weights,
                "static" if is_static else "",
                limits=Limits(
                    memory=MEMORY + 6 * size,
                    seconds=12 + size // (10 * MIB),
                    timeout=600,
                ),
                prepared=[],
            )
        )
    except IsolationError as error:
        raise ExportVerificationError(
            f"The comparison of '{inspection.path}' with its model {error}"
        ) from error
    return found


def _calibration(expectations: Expectations) -> Mapping[str, list[Inputs]]:
    """One batch for each signature, of whatever range, but a finite one."""
    found = {}
    for case in sorted(expectations.cases, key=lambda case: case.is_sample):
        arrays = (*case.inputs.values(), *case.answers.values())
        if all(
            array.size and np.all(np.isfinite(array.astype("float64")))
            for array in arrays
        ):
            found[case.signature] = [case.inputs]
    for signature in expectations.signatures:
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


def _some(words: list[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + f", and {more} more" * (more > 0)
