"""Models that went through `quantize("int8")`, as graphs that can be converted.

LiteRT's converter lacks kernels for Keras's products of integers. In floats
these products are the same: 8-bit integers, and the sums of their products, are
exact there.
"""

import functools
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_posenc.export.errors import ExportError
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within


def is_quantized(signatures: Sequence[Signature]) -> bool:
    """Returns whether any layer went through `quantize`."""
    return any(map(_quantized_layers, signatures))


def check_not_quantized(
    quantization: str | None, signatures: Sequence[Signature]
) -> None:
    """Raises `ValueError` if Keras has quantized the model already."""
    if quantization is not None and is_quantized(signatures):
        raise ValueError(
            "`quantization` must be None for a model that went through "
            f"quantize(). Received: quantization={quantization!r}"
        )


def int8_in_floats(
    signatures: Sequence[Signature], frozen: FrozenModel
) -> None:
    """Makes Keras's int8 layers compute the same in floats, while frozen.

    Their weights stay integers, and as small in a file.

    Raises:
        ExportError: A layer was quantized to another type, or is of an unknown
            class.
    """
    layers = {
        id(layer): layer
        for signature in signatures
        for layer in _quantized_layers(signature)
    }.values()
    calls = {
        keras.layers.Dense: _dense,
        keras.layers.EinsumDense: _einsum_dense,
        keras.layers.Embedding: _embedding,
    }
    for layer in layers:
        mode = layer.quantization_mode
        # Layers of this package have their own method.
        own = getattr(type(layer), "int8_in_floats", None)
        in_floats = calls.get(type(layer), own)
        if mode != "int8" or in_floats is None:
            what = f"quantized to {mode}"
            if mode == "int8":
                what += f", and of type {type(layer).__name__}"
            raise ExportError(
                f"Layer '{layer.path or layer.name}' is {what}, which "
                "neither LiteRT nor ONNX takes. Export the model as it was "
                "before quantize(), to LiteRT with `quantization`"
            )
        if own is None and layer.lora_enabled:
            raise ExportError(
                f"Layer '{layer.path or layer.name}' is quantized and also has "
                "LoRA weights. Merge them first"
            )
        frozen.compute_by(layer, functools.partial(in_floats, layer))


def _quantized_layers(signature: Signature) -> list[keras.Layer]:
    return [
        layer
        for layer in layers_within(signature.model)
        if layer.quantization_mode
    ]


def _dense(layer: Any, inputs: Any, training: Any = None) -> Any:
    kernel = ops.cast(layer.kernel, inputs.dtype)
    scale = ops.convert_to_tensor(layer.kernel_scale)
    if layer.inputs_quantizer is not None:
        inputs, inputs_scale = _integers(layer, inputs, -1)
        scale = scale * inputs_scale
    return _finished(layer, ops.matmul(inputs, kernel) / scale)


def _einsum_dense(layer: Any, inputs: Any, training: Any = None) -> Any:
    # In "abc,cde->abde", c is summed over: it is in both, not in the result.
    sources, target = layer.equation.replace("...", ".").split("->")
    left, right = sources.split(",")
    axes = [
        index - len(left)
        for index, label in enumerate(left)
        if label in right and label not in target
    ]
    x = inputs
    if layer.inputs_quantizer is not None:
        integers, inputs_scale = _integers(layer, x, tuple(axes))
        x = integers / inputs_scale
    # The scale has the axes of the result, of size 1 where the kernel has none.
    sizes = dict(
        zip(reversed(target), reversed(layer.kernel_scale.shape), strict=False)
    )
    kept = [label for label in target if label in right]
    scale = ops.reshape(layer.kernel_scale, [sizes[label] for label in kept])
    scale = ops.transpose(
        scale, [kept.index(label) for label in right if label in kept]
    )
    scale = ops.reshape(
        scale, [sizes[label] if label in kept else 1 for label in right]
    )
    kernel = ops.cast(layer.kernel, x.dtype) / scale
    return _finished(layer, ops.einsum(layer.equation, x, kernel))


def _embedding(layer: Any, inputs: Any, training: Any = None) -> Any:
    ids = ops.cast(inputs, "int32")
    rows = ops.take(layer.embeddings, ids, axis=0)
    scale = ops.take(layer.embeddings_scale, ids, axis=0)
    rows = ops.cast(rows, layer.compute_dtype)
    return rows / ops.expand_dims(scale, -1)


def _integers(layer: Any, inputs: Any, axis: Any) -> tuple[Any, Any]:
    """Returns inputs rounded as Keras does, in floats, and their scale."""
    integers, scale = layer.inputs_quantizer(inputs, axis=axis)
    return ops.cast(integers, inputs.dtype), scale


def _finished(layer: Any, x: Any) -> Any:
    if layer.bias is not None:
        x = x + layer.bias
    return x if layer.activation is None else layer.activation(x)
