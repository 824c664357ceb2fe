"""Models of mixed precision, in float32."""

from collections.abc import Sequence
from typing import Any

from keras.dtype_policies import DTypePolicy, DTypePolicyMap

from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within


def to_float32(
    signatures: Sequence[Signature],
    frozen: FrozenModel,
    format: str = "litert",
) -> bool:
    """Sets layers of frozen models to run as LiteRT, or ONNX, can.

    LiteRT lacks kernels for most operators of mixed precision: layers with such
    a policy are set to float32, the dtype of their weights. Its fast kernels
    need static shapes and no loops: layers of this package compute so then.
    """
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
            is_low = policy.variable_dtype in ("float16", "bfloat16")
            if is_low and layer.weights:
                raise ExportError(
                    f"Layer '{layer.path or layer.name}' has the dtype policy "
                    f"'{policy.name}', whose weights neither LiteRT nor ONNX "
                    f"takes. Rebuild the model with "
                    f"'mixed_{policy.variable_dtype}' or 'float32'"
                )
            if policy.compute_dtype in ("float16", "bfloat16"):
                changed = True
                frozen.policies[id(layer)] = DTypePolicy("float32")
    return changed
