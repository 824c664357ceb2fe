"""Checks that a model's outputs depend on nothing but its inputs."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.compare import difference, is_float, scales_of
from keras_posenc.export.probes.graphs import Graphs
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.keras_internals import layers_within


@contextlib.contextmanager
def restored(models: Sequence[keras.Model]) -> Iterator[None]:
    """Restores variables, those of metrics too, after models have been run.

    Some of Keras's augmentation layers count draws that they do not use, and a
    file holds the values from before.
    """
    variables = {}
    for model in models:
        metrics = (x.metrics_variables for x in layers_within(model))
        for variable in (*model.variables, *(x for y in metrics for x in y)):
            variables[id(variable)] = variable, variable.value.read_value()
    try:
        yield
    finally:
        for variable, before in variables.values():
            now = variable.value.read_value()
            old, new = np.asarray(before), np.asarray(now)
            # Shared memory shows that nothing was written.
            if not (np.may_share_memory(old, new) or np.array_equal(old, new)):
                variable.assign(before)


def check_repeats(
    run: Graphs, inputs: Inputs, outputs: Mapping[str, Any], tolerance: float
) -> None:
    """Runs a model again.

    The outputs of a model that counts its calls, keeps a state or draws random
    numbers change, and its file would be blamed for that.
    """
    model = run.signature.model
    with restored([model]):
        other = run(inputs)
    apart = difference(outputs, other, scales_of([other]))
    # Threads add in any order.
    if apart.largest_difference <= max(tolerance, TOLERANCE):
        return
    raise ExportVerificationError(
        f"Model '{model.name}' changes from run to run: for the same "
        f"{describe(inputs)}, {apart.where} differs by "
        f"{apart.largest_difference:.3g} in another run. An exported model "
        "must give the same outputs for the same inputs. Build recurrent "
        "layers with stateful=False, draw random numbers and change variables "
        "only if `training` is true, or make the state or the noise an input"
    )


def difference_in_eager_code(
    run: Graphs, inputs: Inputs, outputs: Mapping[str, Any], tolerance: float
) -> str | None:
    """Returns where eager code gives other outputs than the graph, as text."""
    floats = {n: x for n, x in outputs.items() if is_float(x)}  # others may tie
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
