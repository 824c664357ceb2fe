"""Differences between two sets of outputs."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.probes.samples import Inputs
from keras_posenc_worker.cases import distances
from keras_posenc_worker.codec import to_bytes

Outputs = Mapping[str, np.ndarray]

# `retrace(inputs, outputs, tolerance)`: see `Offers.retrace`.
Retrace = Callable[[Inputs, Outputs, Any], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How far some outputs are from those wanted.

    Attributes:
        largest_difference: The largest difference, relative as for `verify`;
            infinite on an error, or if shapes differ.
        where: Name and index of the output with this difference.
    """

    largest_difference: float = 0.0
    where: str = ""


def difference(
    wanted: Outputs,
    got: Outputs,
    scales: Mapping[str, float],
    examples: Sequence[str] = (),
) -> Difference:
    """Compares outputs by their names."""
    worst, where = 0.0, ""
    for name, right in wanted.items():
        if right.shape != got[name].shape:
            return Difference(largest_difference=math.inf, where=name)
        apart = distances(right, got[name], scales[name])
        if apart.size == 0:
            continue
        index = np.unravel_index(np.argmax(apart), apart.shape)
        if apart[index] > worst or not where:
            worst = float(apart[index])
            where = f"{name}{[int(i) for i in index]}"
            if examples and index:
                where += f", where the inputs are {examples[int(index[0])]}"
    return Difference(largest_difference=worst, where=where)


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


def resolve_ties(
    wanted: Outputs,
    got: Outputs,
    inputs: Inputs,
    retrace: Retrace | None,
    tolerance: float,
) -> tuple[Outputs, int]:
    """Returns the outputs to compare others with, and the number of near-ties.

    They are the wanted outputs, except for examples with another choice that
    the model rates equal: there they are the model's outputs for that choice.
    """
    choices = [name for name, value in wanted.items() if not is_float(value)]
    if retrace is None or any(
        got[name].shape != value.shape for name, value in wanted.items()
    ):
        return wanted, 0

    def differing(outputs: Outputs) -> np.ndarray:
        """Returns in which examples some choice is not the given one."""
        found = [_bytes(outputs[n]) != _bytes(got[n]) for n in choices]
        rows = [each.any(axis=(*range(1, each.ndim),)) for each in found]
        return np.any(rows, axis=0)

    other = differing(wanted)
    if not np.any(other):
        return wanted, 0
    try:
        found = retrace(inputs, got, np.float32(tolerance))
    except Exception:  # of the model's code, which may not take such outputs
        return wanted, 0
    # Ties are the other choices that the model now makes as well.
    ties = other & ~differing(found)
    resolved = {
        name: np.where(
            ties.reshape(-1, *[1] * (value.ndim - 1)), found[name], value
        )
        for name, value in wanted.items()
    }
    return resolved, int(np.sum(ties))


def _bytes(values: np.ndarray) -> Any:
    return (
        np.frompyfunc(to_bytes, 1, 1)(values)
        if values.dtype == object
        else values
    )
