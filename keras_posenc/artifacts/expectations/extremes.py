"""Extreme numbers to ask a model with, and how sure of its answers it is."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.expectations.answering import Memory, answers_of
from keras_posenc.artifacts.expectations.expectations import Case
from keras_posenc.artifacts.expectations.questions import Question
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.signatures.signature import Signature

# Each operator of a model rounds by up to 2**-24 of its numbers, which grows
# where large ones cancel. Inputs that are moved at random by 16 times as much
# show how far: rounding may move the outputs four times as far as these do.
_MOVED = 2.0**-20
_ALLOWED = 4
# A sum of n equal numbers, such as the mean of an image of one colour, may be
# off by n roundings in one direction. Weights that are moved by as much show
# how far these go, and what rounds where all inputs are zeros.
_ROUNDING = 2.0**-24
# One draw may happen to move an output by next to nothing: see `allowance.py`.
_DRAWS = 8
# Of a prime length, so that no kernel has the same signs in each row.
_SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], 65_521)


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
    lengths: Sequence[int],
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    takes: Callable[[Inputs], bool],
) -> Iterator[Question]:
    """Yields batches whose examples hold one kind of extreme number each.

    In each input of floats that is no mask; the others are as ever. Where the
    model does not take that, each input has its own batches, of those kinds
    that the model takes there: another one may be a position.

    Args:
        signature: What to make inputs for.
        lengths: Of its dynamic axes but for the batch: the first that the
            model takes.
        invent: Makes its usual inputs, of these shapes by their names.
        takes: Whether the model takes some inputs.
    """
    floats = [
        name
        for name, spec in signature.specs.items()
        if "float" in spec.dtype
        and not ("mask" in name and len(spec.shape) < 3)
    ]
    for length in lengths:
        found = list(_batches(signature, length, invent, floats, [*_KINDS]))
        if all(takes(each.inputs) for each in found):
            yield from found
            return
    for name in floats:
        for length in lengths:
            kinds = [
                kind
                for kind in _KINDS
                if all(
                    takes(each.inputs)
                    for each in _batches(
                        signature, length, invent, [name], [kind]
                    )
                )
            ]
            if kinds:
                yield from _batches(signature, length, invent, [name], kinds)
                break


def _batches(
    signature: Signature,
    length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    floats: Sequence[str],
    kinds: Sequence[str],
) -> Iterator[Question]:
    """Several where the signature's own batch is small."""
    examples = signature.shapes(1, length)
    size = sum(math.prod(examples[name][1:]) for name in floats)
    if not size:
        return
    count = min(max(_NUMBERS // size, _FEWEST), len(kinds))
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
    signature: Signature, question: Question, memory: Memory
) -> Case | None:
    """A batch of extreme numbers, of which those that say something are left.

    Where no output of the model is finite, another example takes its place.
    Large numbers that cancel, or a softmax of them near a tie, leave rounding:
    how far that may move each output is measured by moving the inputs, and by
    moving the weights.

    Args:
        signature: The signature.
        question: The inputs.
        memory: What runs the models.

    Returns:
        The case, or None where no example has a finite output.
    """
    kinds = np.array(question.extremes)
    count = len(kinds)
    rng = np.random.default_rng(0)
    call = answers_of(signature, memory)
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
    positions = max(
        math.prod(value.shape[1:-1]) for value in question.inputs.values()
    )
    step = max(_MOVED, positions * _ROUNDING)
    others = []
    for draw in range(_DRAWS):
        with _moved_weights(signature, step, draw):
            others.append(answers_of(signature, memory.apart())(both[0]))
    rounding = {
        name: _ALLOWED
        * np.maximum(
            _distance(value, moved[name], count),
            _usual([_distance(value, other[name], count) for other in others]),
        )
        for name, value in answers.items()
    }
    return Case(
        signature.name,
        both[0],
        answers,
        extremes=tuple(map(str, kinds)),
        rounding=rounding,
    )


@contextlib.contextmanager
def _moved_weights(
    signature: Signature, step: float, draw: int
) -> Iterator[None]:
    """Makes each weight of a snapshot larger or smaller by a share of it."""
    while signature.origin is not None:
        signature = signature.origin.signature
    kept = [
        (variable, variable.value.read_value())
        for variable in signature.model.variables
        if "float" in variable.dtype
    ]
    try:
        for variable, value in kept:
            array = keras.ops.convert_to_numpy(value)
            signs = np.roll(_SIGNS, 7_919 * draw)  # others in each draw
            factors = 1 + step * np.resize(signs, array.shape)
            variable.assign(array * factors.astype(array.dtype))
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def but_for_rounding(case: Case, got: Mapping[str, Any]) -> dict[str, Any]:
    """Other answers, with the model's own where rounding may differ so far."""
    found = dict(got)
    for name, allowed in case.rounding.items():
        wanted, value = case.answers[name], got[name]
        if value.shape != wanted.shape:
            continue
        near = np.broadcast_to(np.isinf(allowed), value.shape)
        if "float" in wanted.dtype.name and "float" in value.dtype.name:
            with np.errstate(invalid="ignore"):  # an infinity less itself
                distances = np.abs(
                    value.astype("float64") - wanted.astype("float64")
                )
            # Moved however far, a number is one. What is none in the model
            # says nothing.
            near = np.isfinite(distances) & (distances <= allowed)
            near |= ~np.isfinite(wanted.astype("float64"))
        found[name] = np.where(near, wanted, value)
    return found


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats a little larger or smaller, at random; all else as it is."""
    if "float" not in value.dtype.name:
        return value
    factors = 1 + _MOVED * rng.choice([-1, 1], value.shape)
    return value * factors.astype(value.dtype)


def _usual(distances: Sequence[np.ndarray]) -> np.ndarray:
    """The root of the mean square of what several draws have moved."""
    found: np.ndarray = np.sqrt(np.mean(np.square(distances), axis=0))
    return found


def _finite(answers: Mapping[str, Any], count: int) -> np.ndarray:
    """Which examples have an output of finite numbers alone."""
    finite = np.zeros(count, bool)
    for value in answers.values():
        found = np.ones(value.shape, bool)
        if "float" in value.dtype.name:
            found = np.isfinite(value.astype("float64"))
        if value.shape[:1] != (count,):
            found = np.broadcast_to(np.all(found), (count,))
        finite |= np.all(found.reshape(count, -1), axis=1)
    return finite


def _distance(value: Any, moved: Any, count: int) -> np.ndarray:
    """How far each example's numbers have moved: one number for each."""
    if value.shape != moved.shape:
        return np.array(np.inf)
    if "float" in value.dtype.name:
        with np.errstate(invalid="ignore"):  # an infinity less itself
            distances = np.abs(
                value.astype("float64") - moved.astype("float64")
            )
        # Elsewhere the model has no number, and nothing is compared.
        distances = np.where(np.isfinite(distances), distances, 0.0)
    else:
        distances = np.where(value != moved, np.inf, 0.0)
    if value.shape[:1] != (count,):
        return np.array(np.max(distances, initial=0))
    largest = np.max(distances.reshape(count, -1), axis=1, initial=0)
    return largest.reshape(-1, *[1] * (value.ndim - 1))
