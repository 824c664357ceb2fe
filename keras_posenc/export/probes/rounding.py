"""Measure of how far rounding moves a model's outputs, by small changes.

Each operator rounds by up to 2**-24 of its numbers, and the error grows where
large numbers cancel. Inputs and weights are moved at random by 64 times as
much; rounding may move outputs as far as that does. Moves of a fourth, times
four, would not do: a softmax that saturates hides them up to where it flips.
"""

import math
from typing import Any

import keras
import numpy as np

from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.graphs import Call
from keras_posenc.export.probes.repeats import restored

_MOVED = 2.0**-18
# A sum of n equal numbers, such as the mean of an image of one colour, may be
# off by n roundings in one direction. Moving the weights by as much measures
# this, and also rounding where all inputs are zeros.
_ROUNDING = 2.0**-22
_DRAWS = 8  # a few may by chance hardly move an output


def rounding_of(
    probe: Probe, model: keras.Model, call: Call
) -> dict[str, np.ndarray]:
    """Returns how far rounding may move outputs, by their names.

    Of each number of a vector, in each example; none of integers, and 0 of
    what is not finite. Of extreme numbers each example is taken as a whole:
    infinity where it has another integer or text, or is no longer finite.
    """
    step = _MOVED
    if probe.extremes:
        sizes = [value.shape[1:-1] for value in probe.inputs.values()]
        step = max(step, max(map(math.prod, sizes)) * _ROUNDING)
    with restored([model]):
        outputs = call(probe.inputs)  # of the graph that `call` moves
    others = []
    for seed in range(_DRAWS):
        rng = np.random.default_rng(seed)
        inputs = {
            name: _moved(value, _MOVED, rng)
            for name, value in probe.inputs.items()
        }
        with restored([model]):
            for variable in model.variables:
                if "float" in variable.dtype:
                    value = np.asarray(variable.value.read_value())
                    variable.assign(_moved(value, step, rng))
            try:
                others.append(call(inputs))
            except ValueError:  # the model refuses moved inputs
                return {}
    return {
        name: np.max([_movement(probe, value, x[name]) for x in others], axis=0)
        for name, value in outputs.items()
        if (probe.extremes or "float" in value.dtype.name)
        and all(x[name].shape == value.shape for x in others)
    }


def _movement(probe: Probe, value: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Returns how far each number of vectors has moved, at most.

    The vectors of an example are taken together, as few draws may hardly move
    one of them.
    """
    if "float" in value.dtype.name:
        value, moved = value.astype("float64"), moved.astype("float64")
        with np.errstate(invalid="ignore"):  # an infinity less itself
            apart = np.asarray(np.abs(moved - value))
        apart[~np.isfinite(apart)] = 0.0
        if probe.extremes:
            apart[np.isfinite(value) & ~np.isfinite(moved)] = np.inf
    else:
        apart = np.where(value != moved, np.inf, 0.0)
    if not apart.ndim:  # an output without axes
        return apart
    last = apart.ndim if probe.extremes else apart.ndim - 1
    return np.max(apart, axis=(*range(1, last),), keepdims=True, initial=0.0)


def _moved(value: np.ndarray, step: float, rng: np.random.Generator) -> Any:
    """Returns floats moved by a share of them; other values unchanged."""
    if "float" not in value.dtype.name:
        return value
    signs = rng.random(value.shape, "float32") < 0.5
    return value * np.where(signs, 1 - step, 1 + step).astype(value.dtype)
