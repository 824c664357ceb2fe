"""Sizes of a model's weights, for formats with a limit."""

import math
from collections.abc import Sequence

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import once
from keras_posenc.export.signatures.signature import Signature

# Protocol buffers and flatbuffers count bytes in 31 bits; some are left for the
# graph.
MOST = 2**31 - 2**22


def check_size(
    signatures: Sequence[Signature],
    format_name: str,
    advice: str,
    share: float = 1.0,
) -> None:
    """Raises `ExportError` if one file cannot hold the weights."""
    count = sum(
        math.prod(each.shape) * np.dtype(each.dtype).itemsize
        for each in once(x for each in signatures for x in each.model.weights)
    )
    if count * share > MOST:
        raise ExportError(
            f"The model has weights of {units.size(count)}, and {format_name} "
            f"files hold {units.size(MOST)} at most: {advice}"
        )
