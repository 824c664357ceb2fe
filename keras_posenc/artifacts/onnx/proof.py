"""The proof that an ONNX file is what its model becomes, number for number."""

import json
from collections.abc import Sequence
from pathlib import Path

from keras_posenc.artifacts.ground.errors import (
    ExportError,
    ExportVerificationError,
)
from keras_posenc.artifacts.isolated.comparing import onnx_comparison
from keras_posenc.artifacts.onnx.conversion import convert, require_onnx
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.artifacts.verification.file_comparison import (
    compare_files,
    some,
)


def compare_with_conversion(
    signatures: Sequence[Signature], artifact: Path
) -> tuple[list[str], list[str]]:
    """Compares a file with what its signature becomes when converted again.

    Returns:
        What of the graph is not as it is converted here, and what could not be
        compared, in words. Of another graph only the weights are.

    Raises:
        ExportVerificationError: A weight of the model that the signature needs
            is not in the file, bit for bit, but maybe with its axes in another
            order; or another constant is not the model's.
    """
    require_onnx()
    (signature,) = signatures
    try:
        content, weights = convert(signature)
    except ExportError as error:  # others can do more
        return [f"nothing of it can be compared: {error}"], []
    found = compare_files(
        onnx_comparison.__file__, content, artifact, json.dumps(weights)
    )
    if missing := found["weights"]:
        raise ExportVerificationError(
            f"'{artifact}' gives the model's answers, but it does not hold, "
            f"bit for bit, the model's weights {some(missing)}"
        )
    if found["graph"] is not None:
        writer = found["writer"] and f" ({found['writer']} wrote it, it says)"
        return [f"its graph has {found['graph']}{writer}"], []
    if wrong := found["constants"]:
        raise ExportVerificationError(
            f"'{artifact}' gives the model's answers, but not by the model's "
            f"numbers: {some(wrong)}"
        )
    if rounded := found["rounding"]:
        return [], [f"the last bits of constants: {some(rounded)}"]
    return [], []
