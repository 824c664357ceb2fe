"""Whether a model gives the same outputs when it is run again."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.artifacts.expectations.answering import Memory
from keras_posenc.artifacts.expectations.differences import difference
from keras_posenc.artifacts.expectations.expectations import (
    TOLERANCE,
    Case,
    Expectations,
    describe,
    scales_of,
)
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.ground.errors import ExportVerificationError
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

_REMEDY = (
    "An exported model must give the same outputs for the same inputs. Build "
    "recurrent layers with stateful=False, draw random numbers and change "
    "variables only if `training` is true, or make the state or the noise an "
    "input"
)


def check_repeatable(expectations: Expectations, memory: Memory) -> None:
    """Runs each model once more, on the smallest of its test cases.

    A model that counts its calls, keeps a state or draws random numbers gives
    others then, and a file of it would be blamed for them.

    Args:
        expectations: The test cases, with the models' outputs.
        memory: What has run the models.

    Raises:
        ExportVerificationError: Outputs differ, or a variable changed.
    """
    signatures = {each.name: each for each in expectations.signatures}
    seen = set()
    for case in sorted(expectations.cases, key=_size):
        inputs, signature = case.inputs, signatures[case.signature]
        while signature.origin is not None:
            inputs = signature.origin.ask(inputs)
            signature = signature.origin.signature
        if id(signature) not in seen:
            seen.add(id(signature))
            # Several threads may add in another order: a tolerance of 0 is
            # for the file alone.
            tolerance = max(expectations.tolerance, TOLERANCE)
            _check(signature, inputs, memory, tolerance)


def _check(
    signature: Signature, inputs: Inputs, memory: Memory, tolerance: float
) -> None:
    first = memory.answer(signature, inputs)
    model: Any = signature.model
    before = _values(model)
    second = memory.answer_again(signature, inputs)
    changed = [
        variable
        for variable, old, new in zip(
            model.variables, before, _values(model), strict=True
        )
        if not _same(old, new)
    ]
    found = difference(first, second, scales_of([first, second]))
    if found.worst <= tolerance and not changed:
        return
    outputs = (
        f"{found.where} differs by {found.worst:.3g}"
        if found.worst > tolerance
        else "a variable has another value"
    )
    raise ExportVerificationError(
        f"Model '{model.name}' changes by being run: on the same "
        f"{describe(inputs)}, {outputs} the second time. "
        f"{_cause(model, changed)}. {_REMEDY}"
    )


def _size(case: Case) -> float:
    """How many numbers it has; one of none shows nothing, and comes last."""
    return sum(array.size for array in case.inputs.values()) or math.inf


def _values(model: Any) -> list[Any]:
    """The model's variables as they are now; see `snapshot`: not copied."""
    return [variable.value.read_value() for variable in model.variables]


def _same(old: Any, new: Any) -> bool:
    one, other = np.asarray(old), np.asarray(new)
    # What nothing wrote to lies where it lay, and may be large.
    return np.may_share_memory(one, other) or np.array_equal(one, other)


def _cause(model: Any, changed: Sequence[Any]) -> str:
    """Which layers changed their variables, innermost, in words."""
    # Keras keeps the state of recurrent layers beside the variables.
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
            if any(variable is each for each in layer.variables)
        ]
        owner = min(owners, key=lambda layer: len(layer.variables))
        names.append(
            f"layer '{owner.name}' ({type(owner).__name__}) changes its "
            f"variable '{variable.name}'"
        )
    text = ", ".join(dict.fromkeys(names))
    return text[0].upper() + text[1:]
