"""The proof that an ONNX file is what its model becomes, number for number."""

import json

from keras_posenc.artifacts.expectations.expectations import Expectations
from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.artifacts.ground.staging import working_folder
from keras_posenc.artifacts.inspection.inspection import Inspection
from keras_posenc.artifacts.isolated.comparing import onnx_comparison
from keras_posenc.artifacts.onnx.conversion import convert, require_onnx
from keras_posenc.artifacts.verification.file_comparison import (
    altered_in,
    compare_files,
    some,
)


def compare_with_conversion(
    expectations: Expectations, inspection: Inspection
) -> tuple[list[str], list[str], list[str]]:
    """Compares a file with what its signature becomes when converted again.

    Args:
        expectations: The model's answers.
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
    (signature,) = expectations.signatures
    with working_folder() as folder:
        reference = folder / "reference"
        try:
            weights = convert(signature, reference)
        except ExportError as error:  # others can do more
            return [], [f"nothing of it can be compared: {error}"], []
        found = compare_files(
            onnx_comparison.__file__,
            reference,
            inspection.path,
            json.dumps(weights),
        )
    rewritten, folded = [], []
    if found["graph"] is not None:
        writer = found["writer"] and f" ({found['writer']} wrote it, it says)"
        rewritten.append(f"its graph has {found['graph']}{writer}")
    elif found["rounding"]:
        folded.append(f"the last bits of constants: {some(found['rounding'])}")
    return altered_in(found), rewritten, folded
