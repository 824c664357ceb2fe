"""The proof that a LiteRT file is what its model becomes, number for number.

Answers alone do not tell an embedding that nobody asked for, nor the last bits
of a weight.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts import litert_comparison
from keras_posenc.artifacts.errors import ExportError, ExportVerificationError
from keras_posenc.artifacts.expectations import Expectations
from keras_posenc.artifacts.inspection import Inspection
from keras_posenc.artifacts.isolation import (
    MEMORY,
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.artifacts.litert_conversion import convert
from keras_posenc.artifacts.quantization import BY_KERAS, refuse_loops
from keras_posenc.artifacts.samples import Inputs
from keras_posenc.artifacts.signatures import Signature
from keras_posenc.artifacts.staging import working_folder, writing_to
from keras_posenc.progress import progress

_NAMED = 3  # of what differs
_RANGES = (
    "the ranges of numbers that it was calibrated to, which scale what comes "
    "into its products, its biases, and the rows that tables are rounded by"
)


def compare_with_file(
    expectations: Expectations, inspection: Inspection
) -> tuple[list[str], list[str]]:
    """Compares a file with what its signatures become when converted again.

    Args:
        expectations: The model's answers; of it nothing can be asked any more.
        inspection: The file.

    Returns:
        What of the file is not the model's, and what could not be compared, in
        words.

    Raises:
        ExportVerificationError: The file cannot be compared within limits.
    """
    signatures = expectations.signatures
    mode = expectations.quantization
    mode = None if mode == BY_KERAS else mode
    is_static = mode == "int8-static"
    try:
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
    except ExportError as error:  # others can do more
        return [], [f"its weights and constants: {error}"]
    with working_folder() as folder, writing_to(folder.parent):
        reference = folder / "reference.tflite"
        reference.write_bytes(content)

        def compare(weights: str) -> dict[str, Any]:
            return _compared(
                inspection, reference, signatures, weights, is_static
            )

        found = compare("")
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
    if found["graph"] is not None:
        folded.append(
            "all of it but the weights that it keeps as they are: another "
            f"version, or another converter, wrote it ({found['graph']})"
        )
    if found["folded"]:
        folded.append(
            "weights that became part of other numbers: "
            f"{_some(found['folded'])}"
        )
    return altered, folded


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
