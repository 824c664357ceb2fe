"""Differences between two sets of outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc_worker.cases import distances

Outputs = Mapping[str, np.ndarray]


def difference(
    wanted: Outputs,
    got: Outputs,
    scales: Mapping[str, float],
    examples: Sequence[str] = (),
) -> tuple[float, str]:
    """Returns the largest relative difference of outputs, and where it is."""
    worst, where = 0.0, ""
    for name, right in wanted.items():
        if right.shape != got[name].shape:
            return math.inf, name
        apart = distances(right, got[name], scales[name])
        if apart.size == 0:
            continue
        index = np.unravel_index(np.argmax(apart), apart.shape)
        if apart[index] > worst or not where:
            worst = float(apart[index])
            where = f"{name}{[int(i) for i in index]}"
            if examples and index:
                where += f", where the inputs are {examples[int(index[0])]}"
    return worst, where


def scales_of(outputs: Sequence[Outputs]) -> dict[str, float]:
    """Returns the size of each output's numbers, from 0.01 to 1, by name."""
    scales: dict[str, float] = {}
    for each in outputs:
        for name, value in each.items():
            numbers = np.zeros(0)
            if is_float(value):
                numbers = np.abs(value.astype("float64"))
            largest = np.max(numbers[np.isfinite(numbers)], initial=0.01)
            scales[name] = min(1.0, max(scales.get(name, 0.01), largest))
    return scales


def is_float(values: Any) -> bool:
    """Returns whether an array holds floats, bfloat16 too."""
    return "float" in values.dtype.name


def is_finite(values: Any) -> np.ndarray:
    """Returns which floats are finite."""
    return np.isfinite(values.astype("float64"))


def is_nan(values: Any) -> np.ndarray:
    """Returns which floats are NaN."""
    return np.isnan(values.astype("float64"))


def has_nan(outputs: Outputs) -> bool:
    """Returns whether some number is NaN."""
    return any(is_float(x) and bool(is_nan(x).any()) for x in outputs.values())
