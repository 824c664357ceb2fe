"""Runs the model itself, and finds models that are changed by it."""

import contextlib
import functools
import hashlib
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_posenc.export.errors import (
    ExportError,
    ExportVerificationError,
    in_words,
)
from keras_posenc.export.probes.compare import difference, scales_of
from keras_posenc.export.probes.generate import Probe
from keras_posenc.export.probes.samples import Inputs, describe
from keras_posenc.export.probes.tolerance import TOLERANCE
from keras_posenc.export.signatures.signature import Signature, trace
from keras_posenc.keras_internals import layers_within

Call = Callable[[Inputs], dict[str, Any]]


class Memory:
    """Outputs of models: several signatures run one model on the same inputs.

    Attributes:
        seconds: How long the processor works for each output, also for those
            that were known.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._calls: dict[int, Call] = {}
        self._known: dict[Any, tuple[dict[str, Any], float]] = {}

    def run(self, signature: Signature, inputs: Inputs) -> dict[str, Any]:
        """Returns the outputs of a model, called once for the same inputs."""
        model = id(signature)
        if model not in self._calls:
            self._calls[model] = _call_of(signature)
        key = model, hashlib.sha256(pickle.dumps(inputs)).digest()
        if key not in self._known:
            began = time.process_time()
            outputs = self._calls[model](inputs)
            self._known[key] = outputs, time.process_time() - began
        outputs, seconds = self._known[key]
        self.seconds += seconds
        return outputs

    def apart(self) -> "Memory":
        """Returns the same models, of which no output is known."""
        other = Memory()
        other._calls = self._calls
        return other

    def run_again(self, signature: Signature, inputs: Inputs) -> dict[str, Any]:
        """Returns the outputs of one more call, after `run`."""
        return self._calls[id(signature)](inputs)


def runner_of(signature: Signature, memory: Memory) -> Call:
    """Returns a function that runs the model: its eager code, or its graph.

    What a signature adds to its model is done in NumPy; see `Origin`.
    """
    origin = signature.origin
    if origin is not None:
        run = runner_of(origin.signature, memory)
        return lambda inputs: origin.tell(run(origin.ask(inputs)))
    return functools.partial(memory.run, signature)


def _call_of(signature: Signature) -> Call:
    if any(
        layer.compute_dtype in ("float16", "bfloat16")
        for layer in layers_within(signature.model)
    ):
        # Graphs round to low precision at other places than eager code does,
        # and `model.predict` runs the graph.
        return graph_of(signature)
    return lambda inputs: _run(signature, signature.call, inputs)


def graph_of(signature: Signature) -> Call:
    """Returns the model's graph, which reads the weights as they are then."""
    graph = trace(signature)
    return lambda inputs: _run(
        signature, lambda tensors: graph(**tensors), inputs
    )


def _run(signature: Signature, call: Any, inputs: Inputs) -> dict[str, Any]:
    import tensorflow as tf

    try:
        # Where the worker is, too: a GPU's products are another's.
        with tf.device("CPU:0"):
            outputs = call(
                {name: tf.constant(value) for name, value in inputs.items()}
            )
    except ExportError:  # of a weight that cannot be exported
        raise
    except Exception as error:
        raise ValueError(
            f"The model itself does not take {describe(inputs)} in signature "
            f"'{signature.name}': {in_words(error)}"
        ) from error
    return {name: value.numpy() for name, value in outputs.items()}


_REMEDY = (
    "An exported model must give the same outputs for the same inputs. Build "
    "recurrent layers with stateful=False, draw random numbers and change "
    "variables only if `training` is true, or make the state or the noise an "
    "input"
)

# To add to a variable, to see whether outputs depend on it. One in 8 bits too.
_FAR = 2**20 + 1


@contextlib.contextmanager
def restored(signatures: Sequence[Signature]) -> Iterator[None]:
    """Gives variables their values back, once the models have been run.

    Some of Keras's layers of augmentation count what they draw also where they
    do not use it, and files hold what was there before.
    """
    variables = list(
        {
            id(variable): variable
            for signature in signatures
            for variable in _variables(signature.model)
        }.values()
    )
    before = _values(variables)
    yield
    for variable, old, new in zip(
        variables, before, _values(variables), strict=True
    ):
        if not _same(old, new):
            variable.assign(old)


def check_repeatable(
    signatures: Sequence[Signature],
    probes: Sequence[Probe],
    tolerance: float,
    memory: Memory,
) -> None:
    """Runs each model once more, on the smallest of its probes.

    A model that counts its calls, keeps a state or draws random numbers gives
    others then, and a file of it would be blamed for them.

    Args:
        signatures: Those of the models.
        probes: What they were run with.
        tolerance: The largest difference that passes.
        memory: What has run the models.

    Raises:
        ExportVerificationError: Outputs differ, or a variable changed that
            they depend on.
    """
    by_name = {each.name: each for each in signatures}
    smallest: dict[int, tuple[Signature, Inputs]] = {}
    for probe in sorted(probes, key=_size):
        inputs, signature = probe.inputs, by_name[probe.signature]
        while signature.origin is not None:
            inputs = signature.origin.ask(inputs)
            signature = signature.origin.signature
        smallest.setdefault(id(signature), (signature, inputs))
    # Several threads may add in another order: a tolerance of 0 is for the
    # file alone.
    tolerance = max(tolerance, TOLERANCE)
    layers = {key: _layers(each) for key, (each, _) in smallest.items()}
    checked: set[int] = set()
    for key in sorted(layers, key=lambda key: -len(layers[key])):
        if not layers[key] or not layers[key] <= checked:
            checked |= layers[key]  # a part of a model is checked with it
            _check(*smallest[key], memory, tolerance)


def _layers(signature: Signature) -> set[int]:
    """The ids of a model's layers, without models that are graphs of them."""
    return {
        id(layer)
        for layer in layers_within(signature.model)
        if not getattr(layer, "inputs", None)
    }


def _check(
    signature: Signature, inputs: Inputs, memory: Memory, tolerance: float
) -> None:
    first = memory.run(signature, inputs)
    model: Any = signature.model
    variables = _variables(model)
    before = _values(variables)
    second = memory.run_again(signature, inputs)
    changed = [
        variable
        for variable, old, new in zip(
            variables, before, _values(variables), strict=True
        )
        if not _same(old, new)
    ]
    found = difference(first, second, scales_of([first, second]))
    if found.worst <= tolerance:
        # Their outputs agree, whatever they have drawn.
        seeds = _seeds(model)
        changed = [each for each in changed if id(each) not in seeds]
        if not changed:
            return
        if not _depends(signature, inputs, memory, first, changed, tolerance):
            return
    outputs = (
        f"{found.where} differs by {found.worst:.3g}"
        if found.worst > tolerance
        else "a variable that outputs depend on has another value"
    )
    raise ExportVerificationError(
        f"Model '{model.name}' changes by being run: on the same "
        f"{describe(inputs)}, {outputs} the second time. "
        f"{_cause(model, changed)}. {_REMEDY}"
    )


def _depends(
    signature: Signature,
    inputs: Inputs,
    memory: Memory,
    first: dict[str, Any],
    variables: Sequence[Any],
    tolerance: float,
) -> bool:
    """Whether other values of the variables give other outputs than these.

    What a variable is by one more run moves outputs by little, or by nothing
    until it has been counted far enough.
    """
    kept = _values(variables)
    for variable, value in zip(variables, map(np.asarray, kept), strict=True):
        variable.assign(value + np.asarray(_FAR).astype(value.dtype))
    try:
        other = memory.run_again(signature, inputs)
    except ValueError:  # the model does not take such values
        return True
    finally:
        for variable, value in zip(variables, kept, strict=True):
            variable.assign(value)
    return difference(first, other, scales_of([first, other])).worst > tolerance


def _size(probe: Probe) -> float:
    """How many numbers it has; one of none shows nothing, and comes last."""
    return sum(array.size for array in probe.inputs.values()) or math.inf


def _variables(model: Any) -> list[Any]:
    """All variables of a model, once each; Keras's list has no metrics'."""
    metrics = [
        variable
        for layer in layers_within(model)
        for variable in layer.metrics_variables
    ]
    return list({id(each): each for each in model.variables + metrics}.values())


def _seeds(model: Any) -> set[int]:
    """The ids of the states of seed generators: variables, but no weights."""
    return set(map(id, model.variables)) - set(map(id, model.weights))


def _values(variables: Sequence[Any]) -> list[Any]:
    """Variables as they are now; TensorFlow copies them when it writes."""
    return [variable.value.read_value() for variable in variables]


def _same(old: Any, new: Any) -> bool:
    one, other = np.asarray(old), np.asarray(new)
    # What nothing wrote to lies where it lay, and may be large.
    return np.may_share_memory(one, other) or np.array_equal(one, other)


def _cause(model: Any, changed: Sequence[Any]) -> str:
    """Which layers changed their variables, innermost, in words."""
    # `model.variables` has no states of recurrent layers.
    stateful = [
        f"layer '{layer.name}' ({type(layer).__name__}) is stateful"
        for layer in layers_within(model)
        if getattr(layer, "stateful", False)
    ]
    if not changed and not stateful:
        return (
            "None of its variables changed: the code of a layer draws random "
            "numbers, or keeps something in Python"
        )
    names = stateful
    for variable in changed:
        owners = [
            layer
            for layer in layers_within(model)
            if any(variable is each for each in _variables(layer))
        ]
        owner = min(owners, key=lambda layer: len(_variables(layer)))
        names.append(
            f"layer '{owner.name}' ({type(owner).__name__}) changes its "
            f"variable '{variable.name}'"
        )
    text = ", ".join(dict.fromkeys(names))
    return text[0].upper() + text[1:]
