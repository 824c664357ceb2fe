"""Checks that a model's outputs depend on nothing but its inputs."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.compare import difference, scales_of
from keras_posenc.export.probes.graphs import Graphs
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.keras_internals import layers_within


@contextlib.contextmanager
def restored(models: Sequence[keras.Model]) -> Iterator[None]:
    """Restores variables after the models have been run.

    Some of Keras's augmentation layers count draws that they do not use, and a
    file holds the values from before.
    """
    variables = list(
        {
            id(variable): variable
            for model in models
            for variable in _variables(model)
        }.values()
    )
    before = _values(variables)
    try:
        yield
    finally:
        for variable, old in _changed(variables, before):
            variable.assign(old)


def _variables(model: keras.Model) -> list[Any]:
    """Returns the variables of a model, those of metrics included."""
    metrics = (layer.metrics_variables for layer in layers_within(model))
    return [*model.variables, *(x for each in metrics for x in each)]


def _values(variables: Sequence[Any]) -> list[Any]:
    return [variable.value.read_value() for variable in variables]


def _changed(
    variables: Sequence[Any], before: Sequence[Any]
) -> list[tuple[Any, Any]]:
    """Returns the variables that have changed, with their former values."""
    found = []
    pairs = zip(before, _values(variables), strict=True)
    for variable, (old, new) in zip(variables, pairs, strict=True):
        one, other = np.asarray(old), np.asarray(new)
        # Shared memory shows that nothing was written.
        if not (np.may_share_memory(one, other) or np.array_equal(one, other)):
            found.append((variable, old))
    return found


def check_repeats(
    run: Graphs, inputs: Inputs, outputs: Mapping[str, Any], tolerance: float
) -> None:
    """Runs a model again.

    The outputs of a model that counts its calls, keeps a state or draws random
    numbers change, and its file would be blamed for that.
    """
    model = run.signature.model
    variables = _variables(model)
    with restored([model]):
        before = _values(variables)
        apart = difference(outputs, other := run(inputs), scales_of([other]))
        changed = [variable for variable, _ in _changed(variables, before)]
    # Threads add in any order.
    if apart.largest_difference <= max(tolerance, TOLERANCE):
        return
    names = ", ".join(dict.fromkeys(each.path for each in changed))
    raise ExportVerificationError(
        f"Model '{model.name}' changes from run to run: for the same "
        f"{describe(inputs)}, {apart.where} differs by "
        f"{apart.largest_difference:.3g} in another run"
        + f", in which {names} changed"
        * bool(names)
        + ". An exported model must give the same outputs for the same inputs. "
        "Build recurrent layers with stateful=False, draw random numbers and "
        "change variables only if `training` is true, or make the state or the "
        "noise an input"
    )


def difference_in_eager_code(
    run: Graphs, inputs: Inputs, outputs: Mapping[str, Any], tolerance: float
) -> str | None:
    """Returns where eager code gives other outputs than the graph, as text."""
    # Choices may be ties.
    floats = {n: x for n, x in outputs.items() if "float" in x.dtype.name}
    try:
        found = run.directly(inputs)
    except ValueError as error:
        text = " ".join(f"{error}".split())[:300]
    else:
        apart = difference(floats, found, scales_of([floats]))
        # Graphs of deep models round differently.
        if apart.largest_difference <= max(tolerance, 100 * TOLERANCE):
            return None
        text = f"{apart.where} differs by {apart.largest_difference:.3g}"
    return (
        f"Model '{run.signature.model.name}' called directly, `model(x)`, "
        "gives other outputs than its graph, which `model.predict(x)` and the "
        f"file run: {describe(inputs)}: {text}"
    )
