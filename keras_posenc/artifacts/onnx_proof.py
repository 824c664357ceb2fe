"""The proof that an ONNX file is what its model becomes, number for number.

Answers alone do not tell an embedding that nobody asked for, nor the last bits
of a weight.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from keras_posenc.artifacts import onnx_comparison
from keras_posenc.artifacts.errors import ExportError, ExportVerificationError
from keras_posenc.artifacts.isolation import (
    MEMORY,
    MIB,
    IsolationError,
    Limits,
    run_isolated,
)
from keras_posenc.artifacts.onnx_conversion import convert, require_onnx
from keras_posenc.artifacts.signatures import Signature
from keras_posenc.artifacts.staging import working_folder, writing_to

_NAMED = 3  # of what differs


def compare_with_conversion(
    signatures: Sequence[Signature], artifact: Path
) -> list[str]:
    """Compares a file with what its signature becomes when converted again.

    Returns:
        What could not be compared, in words: of a graph that other versions
        wrote, or another converter, only the weights can.

    Raises:
        ExportVerificationError: A weight of the model that the signature needs
            is not in the file, bit for bit, but maybe with its axes in another
            order; or another constant is not the model's, or, where the same
            versions wrote it, an operator.
    """
    require_onnx()
    (signature,) = signatures
    try:
        content, weights = convert(signature)
    except ExportError as error:  # others can do more
        return [f"its weights and constants: {error}"]
    size = artifact.stat().st_size + len(content)
    limits = Limits(
        memory=MEMORY + 6 * size, seconds=12 + size // (10 * MIB), timeout=600
    )
    with working_folder() as folder, writing_to(folder.parent):
        reference = folder / "reference.onnx"
        reference.write_bytes(content)
        try:
            found = json.loads(
                run_isolated(
                    onnx_comparison.__file__,
                    str(reference),
                    str(artifact.resolve()),
                    json.dumps(weights),
                    limits=limits,
                )
            )
        except IsolationError as error:
            raise ExportVerificationError(
                f"The comparison of '{artifact}' with its model {error}"
            ) from error
    if missing := found["weights"]:
        raise ExportVerificationError(
            f"'{artifact}' gives the model's answers, but it does not hold, "
            f"bit for bit, the model's weights {_some(missing)}"
        )
    if found["graph"] is not None and found["same_writer"]:
        raise ExportVerificationError(
            f"'{artifact}' gives the model's answers, but it has "
            f"{found['graph']}. If another version of the model's code wrote "
            "it, export it anew"
        )
    if found["graph"] is not None:
        return [
            "all of the graph but its weights, which are the model's: other "
            "versions, or another converter, wrote it with "
            f"{found['graph']}"
        ]
    if wrong := found["constants"]:
        raise ExportVerificationError(
            f"'{artifact}' gives the model's answers, but not by the model's "
            f"numbers: {_some(wrong)}"
        )
    if rounded := found["rounding"]:
        return [f"the last bits of constants: {_some(rounded)}"]
    return []


def _some(words: list[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + f", and {more} more" * (more > 0)
