"""How large a model's weights are, for formats that cannot hold any."""

import math
from collections.abc import Sequence

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc.export.signatures.signature import Signature

# Protocol buffers and flatbuffers count bytes in 31 bits, and the graph stands
# beside the weights.
MOST = 2**31 - 2**22


def check_size(
    signatures: Sequence[Signature],
    format_name: str,
    advice: str,
    share: float = 1.0,
) -> None:
    """Raises `ExportError` where one file cannot hold the weights.

    That is before the model is asked and converted, which takes long.

    Args:
        signatures: Those of the file.
        format_name: Of the file.
        advice: What to do instead, in words.
        share: How many bytes the file has for each of the weights, at least.
    """
    variables = {
        id(variable): variable
        for signature in signatures
        for variable in signature.model.weights
    }
    count = sum(
        math.prod(each.shape) * np.dtype(each.dtype).itemsize
        for each in variables.values()
    )
    if count * share > MOST:
        raise ExportError(
            f"The model has weights of {units.size(count)}, and {format_name} "
            f"files hold {units.size(MOST)} at most: {advice}"
        )
