"""Largest allowed difference of a quantized file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

TOLERANCE = 1e-5  # of files that compute in float32

AGREEMENT = 0.99  # of a quantized file's largest scores

MODES = ("float16", "int8", "int8-weights", "int8-static", "int4")
# No mode to choose: Keras has quantized the model itself. The file rounds in
# the same way, except for sums that float32 moves across a half.
BY_KERAS = "keras-int8"
# How ONNX Runtime's quantizer rounds, in any mode.
BY_ONNX = "onnx-int8"

# Usual difference of a file, as a multiple of the movement of the outputs by
# rounded weights. A float16 file rounds only weights. An int8 file also rounds
# the inputs of each product to 8 bits, which about doubles the difference: in
# the range of each row (dynamic), or of all rows (static). An ONNX file rounds
# kernels to 7 bits, which move the outputs twice as far already.
_USUAL = {
    "float16": 1,
    "int8": 2,
    "int8-weights": 1,
    "int8-static": 4,
    "int4": 2,
    BY_KERAS: 2,
    BY_ONNX: 2,
}

# Allowed multiple of the usual difference: six standard deviations.
DEVIATIONS = 6

# A single draw, or even three, may by chance hardly move an output.
_DRAWS = 16

# Smaller constants stay float32, except in a static file.
_SMALLEST = 1024
_BY_ROW = ("int8", "int8-weights", "int4")  # tables, with a scale for each row
_LEAVING = (*_BY_ROW, BY_ONNX)


def allowed_difference(
    signatures: Sequence[Signature],
    quantization: str,
    differs: Callable[[], Any],
    modes: Mapping[int, str] | None = None,
) -> Any:
    """Returns how far a correct file may differ, measured on the model itself.

    The model's weights are moved at random by up to half a step of the mode's
    rounding, and it is run again. A correct file differs by a few times as
    much; one with a wrong scale by far more.

    Args:
        signatures: Signatures of frozen models, whose weights are moved.
        quantization: The mode, or `BY_KERAS` or `BY_ONNX`.
        differs: Runs the models again, and returns how far their outputs are
            from the first ones: a number, or an array of numbers that grow with
            the movement of the weights.
        modes: Modes of single variables, by their ids; `"float32"` is not
            moved.

    Returns:
        A number, or an array, like those of `differs`.
    """
    rng = np.random.default_rng(0)
    steps = [*_half_steps(signatures, quantization, modes or {})]
    moved = []
    for _ in range(_DRAWS):
        for variable, value, half_step in steps:
            variable.assign(value + rng.uniform(-1, 1, value.shape) * half_step)
        moved.append(differs())
    for variable, value, _ in steps:
        variable.assign(value)
    usual = _USUAL[quantization] * np.sqrt(np.mean(np.square(moved), axis=0))
    return DEVIATIONS * usual


def _half_steps(
    signatures: Sequence[Signature],
    quantization: str,
    modes: Mapping[int, str],
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Yields each variable that a file rounds, its value, and half a step."""
    for variable, axis in _weights(signatures):
        value = keras.ops.convert_to_numpy(variable)
        mode = modes.get(id(variable), quantization)
        least = _SMALLEST if mode in _LEAVING else 1
        if mode == "float32" or value.size < least:
            continue
        if value.ndim < 2 and mode in _LEAVING:
            continue  # no product and no lookup reads it
        if mode == "float16":
            half_step = np.abs(value) * 2.0**-11
        elif mode == BY_KERAS:
            half_step = np.abs(value) * 2.0**-22
        elif mode == "int4" and value.ndim > 1:
            half_step = _of_blocks(value, 0 if axis else 1)
        else:
            if axis is None and mode in _BY_ROW:
                axis = tuple(range(1, value.ndim))  # each row of a table
            largest = np.max(np.abs(value), axis=axis, keepdims=True)
            is_kernel = axis is not None
            most = 64 if mode == BY_ONNX and is_kernel else 127
            half_step = largest / most / 2
        yield variable, value, half_step


def _of_blocks(value: np.ndarray, axis: int) -> np.ndarray:
    """Returns half a step of 4 bits, in blocks along an axis; else of 8 bits.

    Args:
        value: A kernel or a table.
        axis: That of the kernel's inputs, or of the table's columns.
    """
    rows = np.abs(np.moveaxis(value, axis, -1))
    size, most = (32, 7) if rows.shape[-1] % 32 == 0 else (rows.shape[-1], 127)
    blocks = rows.reshape(*rows.shape[:-1], -1, size)
    largest = np.max(blocks, axis=-1, keepdims=True)
    half_step = np.broadcast_to(largest / most / 2, blocks.shape)
    return np.moveaxis(half_step.reshape(rows.shape), -1, axis)


def _weights(
    signatures: Sequence[Signature],
) -> Iterator[tuple[Any, tuple[int, ...] | None]]:
    """Yields each float variable, and the axes with one scale; None for all."""
    layers = {
        id(layer): layer
        for signature in signatures
        for layer in layers_within(signature.model)
    }.values()
    tables = {
        id(variable)
        for layer in layers
        if isinstance(layer, keras.layers.Embedding)
        for variable in layer.weights
    }
    variables = {
        id(variable): variable for layer in layers for variable in layer.weights
    }
    for identity, variable in variables.items():
        rank = len(variable.shape)
        if "float" in variable.dtype:
            per_channel = rank > 1 and identity not in tables
            yield variable, tuple(range(rank - 1)) if per_channel else None
