"""Compares a file with the one that its model becomes, an ONNX file first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats.onnx_convert import convert, require_onnx
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.cases import Expectations
from keras_posenc.export.publish import working_folder
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc_worker.comparing import onnx_comparison


def compare_with_conversion(
    reference: Reference, inspection: Inspection
) -> tuple[list[str], list[str], list[str]]:
    """Compares a file with what its signature becomes when converted again.

    Args:
        reference: The model's outputs.
        inspection: The file.

    Returns:
        What of the file is not the model's, what of its graph is not as it is
        converted here, and what could not be compared, in words. Weights may
        stand there with their axes in another order; of another graph only
        they are compared.

    Raises:
        ExportVerificationError: The file cannot be compared within limits.
    """
    require_onnx()
    (signature,) = reference.signatures
    with working_folder() as folder:
        converted = folder / "reference"
        try:
            weights = convert(signature, converted)
        except ExportError as error:  # others can do more
            return [], [f"nothing of it can be compared: {error}"], []
        found = compare_files(
            onnx_comparison.__name__,
            converted,
            inspection.path,
            weights,
        )
    rewritten, folded = [], []
    if found["graph"] is not None:
        writer = found["writer"] and f" ({found['writer']} wrote it, it says)"
        rewritten.append(f"its graph has {found['graph']}{writer}")
    elif found["rounding"]:
        folded.append(f"the last bits of constants: {some(found['rounding'])}")
    return altered_in(found), rewritten, folded


_NAMED = 3  # of what differs


def compare_files(
    module: str,
    reference: Path,
    artifact: Path,
    *arguments: Any,
    prepare: Sequence[Any] | None = None,
    more_bytes: int = 0,
) -> dict[str, Any]:
    """Lets a worker compare a file with another one.

    Args:
        module: One of `keras_posenc_worker.comparing`. Its `main` takes the
            paths of both files, and returns what differs.
        reference: The file that the model becomes here.
        artifact: The file to judge.
        *arguments: What `main` takes besides.
        prepare: As for `Worker`.
        more_bytes: Of what else it reads, for its limits.

    Raises:
        ExportVerificationError: The files cannot be compared within limits.
    """
    size = artifact.stat().st_size + reference.stat().st_size + more_bytes
    try:
        found: dict[str, Any] = run_in_worker(
            module,
            str(reference),
            str(artifact.resolve()),
            *arguments,
            limits=Limits(
                memory=MEMORY + 6 * size,
                seconds=12 + size // (10 * MIB),
                timeout=600,
            ),
            prepare=prepare,
        )
    except WorkerError as error:
        raise ExportVerificationError(
            f"The comparison of '{artifact}' with its model {error}"
        ) from error
    return found


def altered_in(found: Mapping[str, Any]) -> list[str]:
    """What of a file is not the model's, in words.

    Of another graph, where nobody knows what stands where, only the weights.
    """
    altered = []
    if found["weights"]:
        altered.append(
            f"missing or different weights: {some(found['weights'])}"
        )
    if found["constants"] and found["graph"] is None:
        altered.append(f"different numbers: {some(found['constants'])}")
    return altered


def some(words: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + f", and {more} more" * (more > 0)
