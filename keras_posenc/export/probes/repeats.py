"""Checks that outputs repeat, and measures how rounding moves them.

Each operator rounds by up to 2**-24 of its numbers, and the error grows where
large numbers cancel. Inputs and weights are moved at random by 64 times as
much; rounding may move outputs as far as that does.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.compare import (
    difference,
    is_finite,
    is_float,
    scales_of,
)
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.keras_internals import layers_within
from keras_posenc_worker.cases import distances

MOST = 1e-2  # of an output's size, that a model may make of rounding
_MOVED = 2.0**-18
_DRAWS = 8  # a few may by chance hardly move an output


@contextlib.contextmanager
def restored(models: Sequence[keras.Model]) -> Iterator[None]:
    """Restores variables after models have been run, those of metrics too."""
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
    """Raises `ExportVerificationError` if outputs of the same inputs change."""
    model = run.signature.model
    with restored([model]):
        other = run(inputs)
    apart, where = difference(outputs, other, scales_of([other]))
    # Threads add in any order.
    if apart <= max(tolerance, TOLERANCE):
        return
    raise ExportVerificationError(
        f"Model '{model.name}' changes from run to run: for the same "
        f"{describe(inputs)}, {where} differs by {apart:.3g} in another run. "
        "An exported model "
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
        apart, where = difference(floats, found, scales_of([floats]))
        # Graphs of deep models round differently.
        if apart <= max(tolerance, 100 * TOLERANCE):
            return None
        text = f"{where} differs by {apart:.3g}"
    return (
        f"Model '{run.signature.model.name}' called directly, `model(x)`, "
        "gives other outputs than its graph, which `model.predict(x)` and the "
        f"file run: {describe(inputs)}: {text}"
    )


def moved_outputs(
    probe: Probe, model: keras.Model, call: Call
) -> list[dict[str, np.ndarray]]:
    """Returns outputs of moved inputs and weights; none if they are refused."""
    found = []
    with restored([model]):
        weights = [
            (variable, np.array(variable.value.read_value()))  # not its memory
            for variable in model.variables
            if "float" in variable.dtype
        ]
        for seed in range(_DRAWS):
            rng = np.random.default_rng(seed)
            inputs = {name: _moved(x, rng) for name, x in probe.inputs.items()}
            for variable, value in weights:
                variable.assign(_moved(value, rng))
            try:
                found.append(call(inputs))
            except ValueError:
                return []
    return found


def _moved(value: np.ndarray, rng: np.random.Generator) -> Any:
    """Returns floats moved by a share of them; other values unchanged."""
    if not is_float(value):
        return value
    signs = rng.random(value.shape, "float32") < 0.5
    return value * np.where(signs, 1 - _MOVED, 1 + _MOVED).astype(value.dtype)


def without_rounding(
    probe: Probe,
    got: Mapping[str, np.ndarray],
    moved: Sequence[Mapping[str, np.ndarray]],
    scales: Mapping[str, float],
    tolerance: float,
) -> tuple[dict[str, np.ndarray], int]:
    """Returns outputs with the model's where only its rounding differs.

    Rounding may move a number by at most `MOST`, and an integer or a text to
    what a moved model gives. Also returns how many examples it moves further:
    their outputs are the model's.
    """
    kept, left_out = dict(got), np.zeros(probe.examples, bool)
    for name, wanted in probe.outputs.items():
        others = [x[name] for x in moved if x[name].shape == wanted.shape]
        if not others:
            continue
        if not is_float(wanted):
            near = np.any([other == got[name] for other in others], axis=0)
            kept[name] = np.where(near, wanted, got[name])
            continue
        known = is_finite(wanted)
        own = np.where(known, wanted.astype("float64"), 0.0)
        size = np.maximum(scales[name], np.abs(own))
        off = distances(wanted, got[name], scales[name])
        apart = np.max([np.abs(x - own) for x in others], axis=0)
        apart = np.where(known, np.where(np.isnan(apart), np.inf, apart), 0.0)
        # The vectors of an example together: few draws may hardly move one.
        axes = (*range(1, own.ndim - 1),)
        apart = np.max(apart, axes, keepdims=True, initial=0.0)
        near = off * size <= np.minimum(apart, MOST * size)
        kept[name] = np.where(near & known, wanted, got[name])
        if own.ndim and len(own) == len(left_out):
            axes = (*range(1, own.ndim),)
            wrong = np.any(~near & (off > tolerance), axis=axes)
            most = np.max(size, axes, initial=0)
            left_out |= wrong & (np.max(apart, axes, initial=0) > MOST * most)
    for name, wanted in probe.outputs.items():
        if is_float(wanted) and wanted.shape[:1] == left_out.shape:
            kept[name] = np.array(kept[name])
            kept[name][left_out] = wanted[left_out]
    return kept, int(left_out.sum())
