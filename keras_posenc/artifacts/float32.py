"""Models of mixed precision, in float32 for a while."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras.dtype_policies import DTypePolicyMap, QuantizedDTypePolicy

from keras_posenc.artifacts.errors import ExportError
from keras_posenc.artifacts.signatures import Signature, flatten_layers


@contextlib.contextmanager
def float32_policies(signatures: Sequence[Signature]) -> Iterator[bool]:
    """Runs every layer as LiteRT can for a while.

    LiteRT has no kernels for most operators of mixed precision: layers with
    such a policy run in float32, as which their weights are stored already.
    Its fast kernels want every shape beforehand: layers with an attribute
    `data_dependent_shapes` have it False meanwhile.

    Yields:
        Whether any layer had to change.

    Raises:
        ExportError: A layer whose weights are quantized, or of low precision.
    """
    changed: list[tuple[keras.Layer, Any]] = []
    restricted: list[keras.Layer] = []
    try:
        for signature in signatures:
            for layer in flatten_layers(signature.model):
                policy = layer.dtype_policy
                if isinstance(policy, DTypePolicyMap) and layer.path:
                    policy = policy[layer.path]
                name = layer.path or layer.name
                mode = policy.quantization_mode
                if mode not in (None, "int8"):  # refused: see keras_int8.py
                    continue
                is_low = policy.variable_dtype in ("float16", "bfloat16")
                if is_low and layer.weights:
                    raise ExportError(
                        f"Layer '{name}' has the dtype policy "
                        f"'{policy.name}', whose weights neither LiteRT nor "
                        "ONNX takes. Rebuild the model with "
                        f"'mixed_{policy.variable_dtype}' or 'float32'"
                    )
                if policy.compute_dtype in ("float16", "bfloat16"):
                    changed.append((layer, policy))
                    layer.dtype_policy = (
                        QuantizedDTypePolicy(mode, "float32")
                        if mode
                        else "float32"
                    )
                if getattr(layer, "data_dependent_shapes", False):
                    restricted.append(layer)
                    layer.data_dependent_shapes = False
        yield bool(changed)
    finally:
        for layer, policy in changed:
            layer.dtype_policy = policy
        for layer in restricted:
            layer.data_dependent_shapes = True
