"""Extreme numbers to ask a model with, and how sure of its answers it is."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_posenc.artifacts.expectations.expectations import Case
from keras_posenc.artifacts.expectations.questions import Question
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.signatures.signature import Signature

# Each operator of a model rounds by up to 2**-24 of its numbers, which grows
# where large ones cancel. Inputs that are moved at random by 16 times as much
# show how far: rounding may move the outputs four times as far as these do.
_MOVED = 2.0**-20
_ALLOWED = 4


def _one(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = np.zeros(shape)
    values[tuple(size // 2 for size in shape)] = 1
    return values


# Where float32, or an operator written otherwise, comes to its limits. Of large
# inputs the first three are tried, for more would take long.
_KINDS: Mapping[
    str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
] = {
    "zeros": lambda rng, shape: np.zeros(shape),
    "1e4": lambda rng, shape: np.full(shape, 1e4),
    "-1e4": lambda rng, shape: np.full(shape, -1e4),
    "1e-20": lambda rng, shape: np.full(shape, 1e-20),
    "one 1 among zeros": _one,
    "30": lambda rng, shape: np.full(shape, 30),
    "-30": lambda rng, shape: np.full(shape, -30),
    "-1e4 to 1e4": lambda rng, shape: rng.uniform(-1e4, 1e4, shape),
}
_FEWEST = 3
_NUMBERS = 2**18  # of all examples


def extreme_questions(
    signature: Signature,
    length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
) -> Iterator[Question]:
    """Yields batches whose examples hold one kind of extreme number each.

    In each input of floats that is no mask; the others are as ever. They are
    several where the signature's own batch is small.

    Args:
        signature: What to make inputs for.
        length: Of its dynamic axes but for the batch.
        invent: Makes its usual inputs, of these shapes by their names.
    """
    floats = [
        name
        for name, spec in signature.specs.items()
        if "float" in spec.dtype
        and not ("mask" in name and len(spec.shape) < 3)
    ]
    examples = signature.shapes(1, length)
    size = sum(math.prod(examples[name][1:]) for name in floats)
    if not size:
        return
    count = min(max(_NUMBERS // size, _FEWEST), len(_KINDS))
    kinds = [*_KINDS][:count]
    shapes = signature.shapes(count, length)
    batch = shapes[floats[0]][0]
    rng = np.random.default_rng(0)
    for start in range(0, count, batch):
        chosen = [kinds[index % count] for index in range(start, start + batch)]
        inputs = invent(shapes)
        for name in floats:
            for row, kind in enumerate(chosen):
                inputs[name][row] = _KINDS[kind](rng, shapes[name][1:])
        yield Question(
            inputs, is_required=False, is_sample=False, extremes=chosen
        )


def extreme_case(
    signature: str,
    question: Question,
    call: Callable[[Inputs], dict[str, Any]],
) -> Case | None:
    """A batch of extreme numbers, of which those that say something are left.

    Where the model's own answer is not finite, another example that has one
    takes its place. Large numbers that cancel, or a softmax of them near a tie,
    leave rounding: how far that may move each answer is measured by moving the
    inputs.

    Args:
        signature: Name of the signature.
        question: The inputs.
        call: What answers for the model.

    Returns:
        The case, or None where no example has a finite answer.
    """
    kinds = np.array(question.extremes)
    count = len(kinds)
    rng = np.random.default_rng(0)
    both = [
        question.inputs,
        {name: _moved(value, rng) for name, value in question.inputs.items()},
    ]
    found = [call(inputs) for inputs in both]
    finite = np.all([_finite(answers, count) for answers in found], axis=0)
    if not np.any(finite):
        return None
    if not np.all(finite):
        chosen = np.resize(np.flatnonzero(finite), count)
        kinds = kinds[chosen]
        both = [
            {name: value[chosen] for name, value in inputs.items()}
            for inputs in both
        ]
        found = [call(inputs) for inputs in both]
        if not all(np.all(_finite(answers, count)) for answers in found):
            return None  # examples are not answered alone
    answers, moved = found
    rounding = {
        name: _rounding(value, moved[name], count)
        for name, value in answers.items()
    }
    return Case(
        signature,
        both[0],
        answers,
        extremes=tuple(map(str, kinds)),
        rounding=rounding,
    )


def but_for_rounding(case: Case, got: Mapping[str, Any]) -> dict[str, Any]:
    """Other answers, with the model's own where rounding may differ so far."""
    found = dict(got)
    for name, allowed in case.rounding.items():
        wanted, value = case.answers[name], got[name]
        if value.shape != wanted.shape:
            continue
        near = np.broadcast_to(np.isinf(allowed), value.shape)
        if "float" in wanted.dtype.name:
            with np.errstate(invalid="ignore"):  # an infinity less itself
                distances = np.abs(
                    value.astype("float64") - wanted.astype("float64")
                )
            # Moved however far, a number is one.
            near = np.isfinite(distances) & (distances <= allowed)
        found[name] = np.where(near, wanted, value)
    return found


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats a little larger or smaller, at random; all else as it is."""
    if "float" not in value.dtype.name:
        return value
    factors = 1 + _MOVED * rng.choice([-1, 1], value.shape)
    return value * factors.astype(value.dtype)


def _finite(answers: Mapping[str, Any], count: int) -> np.ndarray:
    """Which examples have finite numbers in every output."""
    finite = np.ones(count, bool)
    for value in answers.values():
        if "float" in value.dtype.name:
            found = np.isfinite(value.astype("float64"))
            if value.shape[:1] != (count,):
                found = np.broadcast_to(np.all(found), (count,))
            finite &= np.all(found.reshape(count, -1), axis=1)
    return finite


def _rounding(value: Any, moved: Any, count: int) -> np.ndarray:
    """How far rounding may move each example's numbers: one number for each."""
    if value.shape != moved.shape:
        return np.array(np.inf)
    if "float" in value.dtype.name:
        distances = np.abs(value.astype("float64") - moved.astype("float64"))
    else:
        distances = np.where(value != moved, np.inf, 0.0)
    if value.shape[:1] != (count,):
        return np.array(_ALLOWED * np.max(distances, initial=0))
    largest = np.max(distances.reshape(count, -1), axis=1, initial=0)
    return _ALLOWED * largest.reshape(-1, *[1] * (value.ndim - 1))
