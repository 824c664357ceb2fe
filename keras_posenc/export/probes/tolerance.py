"""How far a correct quantized file may differ from its model."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

TOLERANCE = 1e-5  # of files that compute in float32

AGREEMENT = 0.99  # of a quantized file's largest scores

MODES = ("float16", "int8", "int8-static")
# Not a mode to choose: the model itself rounds, as Keras does. The file rounds
# in the same way, but where float32 falls to the other side of a half.
BY_KERAS = "keras-int8"

# How many times as far as its weights' rounding usually moves a model's outputs
# a file usually is from them. One of float16 rounds weights and nothing else.
# One of int8 also rounds what goes into each product, to 8 bits as well, which
# about doubles it, but of the range that each row has (dynamic) or that all of
# them have (static).
_USUAL = {"float16": 1, "int8": 2, "int8-static": 4, BY_KERAS: 2}

# How many times as far as usual it may be: six standard deviations.
DEVIATIONS = 6

# A draw may happen to move an output by next to nothing, and so may three.
_DRAWS = 16

# Smaller constants stay float32 in a file of dynamic range.
_SMALLEST = 1024


def allowed_difference(
    signatures: Sequence[Signature],
    quantization: str,
    differs: Callable[[], Any],
) -> Any:
    """How far a correct file may differ, as measured on the model itself.

    Its weights are moved by up to half a step of the mode's rounding, at
    random, and it is run again: a file whose numbers are right differs by a
    few times of that. One with a wrong scale differs by far more.

    Args:
        signatures: Whose models, which are frozen, to move the weights of.
        quantization: The mode.
        differs: A function that runs the models again, and returns how far
            their outputs are from the first ones: a number, or an array of
            them, each of which grows with the movement of the weights.

    Returns:
        A number, or an array, like those of `differs`.
    """
    rng = np.random.default_rng(0)
    rounded = list(_rounded_weights(signatures, quantization))
    moved = []
    for _ in range(_DRAWS):
        for variable, value, half_step in rounded:
            variable.assign(value + rng.uniform(-1, 1, value.shape) * half_step)
        moved.append(differs())
    for variable, value, _ in rounded:
        variable.assign(value)
    usual = _USUAL[quantization] * np.sqrt(np.mean(np.square(moved), axis=0))
    return DEVIATIONS * usual


def _rounded_weights(
    signatures: Sequence[Signature], quantization: str
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Each variable that a file rounds, its value, and half a step of that."""
    for variable, axis in _weights(signatures):
        value = keras.ops.convert_to_numpy(variable)
        if value.size < (_SMALLEST if quantization == "int8" else 1):
            continue
        if quantization == "float16":
            half_step = np.abs(value) * 2.0**-11
        elif quantization == BY_KERAS:
            half_step = np.abs(value) * 2.0**-22
        else:
            largest = np.max(np.abs(value), axis=axis, keepdims=True)
            half_step = largest / 127 / 2
        yield variable, value, half_step


def _weights(
    signatures: Sequence[Signature],
) -> Iterator[tuple[Any, tuple[int, ...] | None]]:
    """Each float variable, and the axes that share one scale; None for all."""
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
