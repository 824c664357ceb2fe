"""Weights of models, for formats that lack dtypes or sizes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras.dtype_policies import DTypePolicy, DTypePolicyMap

from keras_posenc.export import units
from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import FrozenModel, once
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

# Protocol buffers and flatbuffers count bytes in 31 bits; some are left for the
# graph.
MOST = 2**31 - 2**22
# Dtypes of weights that the formats do not have.
_REFUSED = {
    "litert": ("float16", "bfloat16", "float64"),
    "onnx": ("float16", "bfloat16"),
}


def to_float32(
    signatures: Sequence[Signature], frozen: FrozenModel, format: str = "litert"
) -> bool:
    """Sets layers of frozen models to float32; returns whether any was not."""
    frozen.export_to(format)
    changed = False
    for signature in signatures:
        for layer in layers_within(signature.model):
            policy: Any = layer.dtype_policy
            if isinstance(policy, DTypePolicyMap) and layer.path:
                policy = policy[layer.path]
            if mode := layer.quantization_mode:
                raise ExportError(
                    f"Layer '{layer.path or layer.name}' is quantized to "
                    f"{mode}, which neither LiteRT nor ONNX takes. Export the "
                    "model as it was before quantize(), with `quantization`"
                )
            dtype = policy.variable_dtype
            if dtype in _REFUSED[format] and layer.weights:
                raise ExportError(
                    f"Layer '{layer.path or layer.name}' has the dtype policy "
                    f"'{policy.name}', and such a file takes no weights of "
                    f"{dtype}. Rebuild the model with 'mixed_float16', "
                    "'mixed_bfloat16' or 'float32'"
                )
            if policy.compute_dtype in ("float16", "bfloat16"):
                changed = True
                frozen.policies[id(layer)] = DTypePolicy("float32")
    return changed


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
