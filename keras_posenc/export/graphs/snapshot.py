"""Models as they are at one instant, to do with what an export has to.

An export traces a model, asks it, moves its weights and changes its policies,
while another thread may train the same model, or answer requests with it. So
every export, and `verify`, begins with a snapshot, and touches that alone.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.export.graphs.copying import Copier

# For how many seconds weights should have rested: what holds for the longest is
# the time between two updates, not one within.
_RESTS = [0.016 / 2**step for step in range(7) for _ in range(3)]


def snapshot(*values: Any) -> tuple[Any, ...]:
    """Copies of models, and of what holds models, that share what these share.

    Everything that a model reaches is copied: layers, their graph, weights,
    the states of random numbers, metrics, functions that are called (what a
    `tf.function` was traced to stays behind), whether Keras could save it or
    not. The memory of a weight is shared until either side changes it.

    Weights are those of an instant before which none changed for 16 ms, or for
    less where a training in another thread leaves less between its updates:
    each of these is then in all weights or in none. If they never rest for
    0.25 ms, they are as they were read last.

    What no computation writes is shared: tensors, lookup tables, modules and
    their global names, traced functions with the variables in them, and what
    only training uses, the optimizer. Shared, too, is what cannot be copied,
    such as locks, open files and generators, and what has a `__del__`, so that
    it is freed once.

    Args:
        values: Models, dicts or lists of these, or anything else.

    Returns:
        A copy of each.

    Raises:
        ExportError: A layer or a weight cannot be copied.
    """
    copier = Copier()
    copies = tuple(map(copier.copy, values))
    copier.finish()
    _settle(copier.variables)
    return copies


def _settle(variables: Sequence[tuple[Any, Any]]) -> None:
    """Gives all copies the values of one instant.

    Two readings of all that are the same, one after the other, are of the
    time between. To read is not to copy: TensorFlow copies when it writes.
    """
    values = _read(variables)
    for rest in _RESTS:
        time.sleep(rest)
        last, values = values, _read(variables)
        if _same(last, values):
            break
    for (_, copied), value in zip(variables, values, strict=True):
        copied.assign(value)


def _read(variables: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [variable.read_value() for variable, _ in variables]


def _same(one: list[Any], other: list[Any]) -> bool:
    """Whether tensors are the same, bit for bit."""
    return all(map(_equal, one, other))


def _equal(before: Any, after: Any) -> bool:
    one, other = _bits(before), _bits(after)
    # What nobody wrote to is read from where it was: to compare it would take
    # as much memory again.
    return np.shares_memory(one, other) or np.array_equal(one, other)


def _bits(tensor: Any) -> np.ndarray:
    array = np.asarray(tensor)
    return array if array.dtype == object else array.reshape(-1).view("uint8")
