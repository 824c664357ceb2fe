"""Test inputs made from what a signature takes."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.export.probes.cases import LONGEST, Case, Question
from keras_posenc.export.probes.run_model import Memory, answers_of
from keras_posenc.export.probes.samples import (
    Inputs,
    can_be_asked,
    embedding_sizes,
    id_limits,
    known_integers,
    unknown_integers,
)
from keras_posenc.export.signatures.cut_strings import longest_text
from keras_posenc.export.signatures.signature import Signature

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
    """Makes each frozen weight larger or smaller by a share of it."""
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


_BATCHES = (1, 3)

_LENGTHS = (1, 2, 17)

# The most numbers in an input of several dynamic axes, which the longest of
# each would make too many: 32 MB of float32.
_GRID_NUMBERS = 2**23

_WORDS = "one two three four five six seven eight nine ten "

# The first is the batch of one; the batch of three is the others.
_TEXTS = (
    "A short sentence, with punctuation.",
    "",
    "\t Ünïcödé \u4f60\u597d \n \U0001f642 caf\u00e9 ",
    _WORDS * 20,
)


def texts_beyond(length: int | None) -> Sequence[str]:
    """Texts, one of which has more words than a length.

    It has 200 at least, and no more than `LONGEST` calls for.
    """
    repeats = min(length or 0, LONGEST) // 10 + 1
    return (*_TEXTS[:-1], _WORDS * max(repeats, 20))


def make_questions(
    signature: Signature,
    given: Sequence[Inputs],
    max_length: int,
    takes: Callable[[Inputs], bool],
    asked: Sequence[tuple[int, int]] = (),
) -> Iterator[Question]:
    """Yields batches of inputs to ask a model.

    Given samples come first. Then, if all inputs can be invented, a grid:
    batches of 1 and 3 (or the signature's own), each length of 1, 2, an odd one
    and the longest (or its own; `_longest` says what that is for a grid); rows
    with padding at their end, and rows of nothing else; the lowest and the
    highest id. What the model looks up is of its own vocabulary. Of texts one
    is longer than its tokenizer leaves it.
    Samples and the longest are asked for; a shorter length a model may refuse.
    Integers that go to no embedding, and floats that are called a mask, are 1
    where there is a token and 0 where there is padding, or count the tokens;
    those of 8 bits that are images have all values that there are.
    Last come other floats that are extreme: see `extreme_questions`.

    Args:
        signature: What to make inputs for.
        given: The samples that are its inputs.
        max_length: The longest sequence.
        takes: Whether the model takes some inputs. Asked where it has
            embeddings of several sizes, or several integer inputs, to find
            which input goes to which.
        asked: Further batch sizes, with lengths.

    Raises:
        ValueError: The signature takes integers, and neither an `Embedding`
            nor a vocabulary nor samples say which.
    """
    yield from map(Question, given)
    origin = signature.origin
    asked = signature.asked or asked
    if origin is not None:
        if given and not can_be_asked(origin.signature):
            if _asked_of(signature):
                raise ValueError(
                    f"`compiled`: no Embedding layer says what ids signature "
                    f"'{signature.name}' takes, so that not each of its "
                    "programs can be verified. Export it without `compiled`"
                )
            return
        for question in make_questions(
            origin.signature,
            [],
            max_length,
            lambda inputs: takes(origin.widen(inputs)),
            asked,
        ):
            yield dataclasses.replace(
                question, inputs=origin.widen(question.inputs)
            )
        return
    max_length = _longest(signature, max_length)
    sizes = embedding_sizes(signature)
    known = known_integers(signature, sizes)
    if not sizes and unknown_integers(signature, known):
        if not given:
            raise ValueError(
                f"Signature '{signature.name}' takes integers, and no "
                "Embedding layer says how large they may be: give some, as in "
                f"`samples={_example(signature)}` (--samples FILE.npz)"
            )
        return
    texts = texts_beyond(longest_text(signature))
    limits = id_limits(signature, sizes, known, max_length, takes)
    rng = np.random.default_rng(0)
    lengths = sorted({min(length, max_length) for length in _LENGTHS})
    if max_length not in lengths:
        lengths.append(max_length)

    def invent(shapes: Mapping[str, tuple[int, ...]]) -> Inputs:
        return {
            name: _choose(rng, shape, known[name])
            if name in known
            else _invent(
                rng,
                shape,
                signature.specs[name].dtype,
                limits.get(name),
                texts,
                is_mask=name in limits or "mask" in name,
            )
            for name, shape in shapes.items()
        }

    seen = set()
    for batch, length in itertools.chain(
        itertools.product(_BATCHES, lengths), asked
    ):
        shapes = signature.shapes(batch, length)
        key = tuple(shapes.values())
        if key not in seen:  # a static shape has only one
            seen.add(key)
            inputs = invent(shapes)
            is_static = key == tuple(signature.shapes(batch, 0).values())
            yield Question(
                inputs, is_static or length >= max_length, is_sample=False
            )
    tried = dict.fromkeys((min(max_length, max(_LENGTHS)), max_length))
    yield from extreme_questions(signature, [*tried], invent, takes)


def _asked_of(signature: Signature) -> Sequence[tuple[int, int]]:
    """The sizes that it, or what it was made of, must be asked."""
    if signature.asked or signature.origin is None:
        return signature.asked
    return _asked_of(signature.origin.signature)


def _longest(signature: Signature, max_length: int) -> int:
    """The longest sequence, or what a grid can be along each of its axes.

    A grid is an input with several dynamic axes besides the batch, in a
    signature without a sequence to give them their lengths: images, volumes.
    """
    axes = [spec.shape[1:].count(None) for spec in signature.specs.values()]
    if 1 in axes:
        return max_length
    longest = max_length
    for spec, count in zip(signature.specs.values(), axes, strict=True):
        if count:
            batch, *others = spec.shape
            cell = math.prod(size or 1 for size in others)
            room = _GRID_NUMBERS / ((batch or max(_BATCHES)) * cell)
            longest = min(longest, max(int(room ** (1 / count)), 1))
    return longest


def _choose(
    rng: np.random.Generator, shape: tuple[int, ...], values: np.ndarray
) -> np.ndarray:
    """Some of a vocabulary, none twice until it has no more."""
    count = math.prod(shape)
    rounds = -(-count // len(values))
    shuffled = [rng.permutation(values) for _ in range(rounds)]
    chosen = np.concatenate(shuffled or [values])[:count]
    if values.dtype.itemsize == 1 and len(values) == 256 and count > 1:
        chosen[0], chosen[-1] = values[0], values[-1]  # black and white
    return chosen.reshape(shape)


def _invent(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: str,
    limit: int | None,
    texts: Sequence[str],
    is_mask: bool,
) -> np.ndarray:
    if dtype == "string":
        count = int(np.prod(shape, dtype=int))
        chosen = [
            texts[(index + (count > 1)) % len(texts)] for index in range(count)
        ]
        return np.array(chosen, dtype=object).reshape(shape)
    if limit is None and is_mask and dtype != "bool" and len(shape) < 3:
        return _count(shape, dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.7
    if "int" not in dtype:
        values = rng.standard_normal(shape).astype(dtype)
        if len(shape) > 2:  # (batch, seq, ...)
            _pad(values)
        return values
    if limit is None:  # pairs of tokens, real or not
        limit = 2
    values = rng.integers(min(1, limit - 1), limit, shape).astype(dtype)
    flat = values.reshape(shape[0] if shape else 1, -1)  # a view
    if flat.shape[1] > 1:
        flat[0, 0], flat[0, -1] = limit - 1, 0
    else:
        flat[0, :] = limit - 1
    _pad(flat)
    return values


def _count(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Which tokens are real (batch, seq), or how many: (batch,) or ()."""
    values = np.ones(shape, dtype)
    if len(shape) == 2:
        _pad(values)
    return values


def _pad(values: np.ndarray) -> None:
    """Pads the second row from its middle on, and the third all through."""
    values[1:2, (values.shape[1] + 1) // 2 :] = 0
    values[2:3] = 0


def _example(signature: Signature) -> str:
    """Samples as one would write them."""
    arrays = (
        f"'{name}': np.zeros({tuple(2 if n is None else n for n in spec.shape)}"
        f", '{spec.dtype}')"
        for name, spec in signature.specs.items()
    )
    return "{" + ", ".join(arrays) + "}"
