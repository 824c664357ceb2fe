"""Test inputs of numbers at which a runtime reaches its limits."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.signature import Signature

NAN = "NaN"
LARGE_INTEGERS = "large integers"

Shape = tuple[int, ...]
Invent = Callable[[Mapping[str, Shape]], Inputs]
# Inputs, and what the numbers are in each example.
Batch = tuple[Inputs, Sequence[str]]


def _one(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    values = np.zeros(shape)
    values[tuple(size // 2 for size in shape)] = 1
    return values


# Numbers at which float32, or a rewritten operator, reaches its limits. Large
# inputs get only the first three: all would take long.
_KINDS: Mapping[str, Callable[[np.random.Generator, Shape], np.ndarray]] = {
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
_NUMBERS = 2**18  # in all examples together


def extreme_floats(
    signature: Signature,
    lengths: Sequence[int],
    invent: Invent,
    takes: Callable[[Inputs], bool],
) -> Iterator[Batch]:
    """Yields batches whose examples hold one kind of extreme number each.

    They fill one input of floats at a time, if it is no mask, and not made by
    the model's `made_inputs`; the other inputs are usual ones. First comes an
    example in which every second float is NaN, but not the last one.
    """
    floats = [
        name
        for name, spec in signature.specs.items()
        if "float" in spec.dtype
        and name not in Offers.of(signature.model).made_inputs
        and not ("mask" in name and len(spec.shape) < 3)
    ]
    if not floats:
        return
    inputs = invent(signature.shapes(1, lengths[0]))
    for name in floats:
        # Not the last: some maxima are NaN only where that is.
        numbers = inputs[name].reshape(-1)
        numbers[slice(1, -1, 2) if numbers.size > 2 else 0] = np.nan
    yield inputs, [NAN]
    for name in floats:
        for length in lengths:
            batches = [*_batches(signature, invent, length, name)]
            if batches and all(takes(inputs) for inputs, _ in batches):
                yield from batches
                break


def _batches(
    signature: Signature, invent: Invent, length: int, name: str
) -> Iterator[Batch]:
    """Yields one batch, or several if the signature's own batch is small."""
    examples = signature.shapes(1, length)
    size = math.prod(examples[name][1:])
    if not size:
        return
    count = min(max(_NUMBERS // size, _FEWEST), len(_KINDS))
    shapes = signature.shapes(count, length)
    kinds = itertools.cycle([*_KINDS][:count])
    rng = np.random.default_rng(0)
    batch = shapes[name][0]
    for _ in range(0, count, batch):
        chosen, inputs = [*itertools.islice(kinds, batch)], invent(shapes)
        for row, kind in enumerate(chosen):
            inputs[name][row] = _KINDS[kind](rng, shapes[name][1:])
        yield inputs, chosen


# Beyond these, float32 and int32 hold no further whole numbers.
_BASES = (2**24 + 1, 2**31 + 1, 2**40 + 1)
_MOST_SHIFTED = 2**20  # numbers in one batch


def large_integers(
    signature: Signature, sample: Inputs, names: Sequence[str]
) -> Iterator[Batch]:
    """Yields integers from a sample, and from where float32 or int32 end.

    One input is shifted by each power of two.
    """
    first = {name: value[:1] for name, value in sample.items()}
    specs = signature.specs
    if any(
        not spec.shape or spec.shape[0] or not first[name].size
        for name, spec in specs.items()
    ):
        return
    size = max(value.size for value in first.values())
    limits = {name: np.iinfo(specs[name].dtype) for name in names}
    for name, base in itertools.product(names, (None, *_BASES)):
        if base and base > min(each.max for each in limits.values()):
            continue
        filled = {n: np.full_like(first[n], base) for n in names if base}
        inputs, limit = {**first, **filled}, limits[name]
        steps = [sign * 2**bit for bit in range(limit.bits) for sign in (1, -1)]
        steps = steps[:: max(len(steps) * size // _MOST_SHIFTED, 1)]
        shifted = [inputs[name].astype(object) + step for step in steps]
        rows = [
            row.astype(specs[name].dtype)
            for row in shifted
            if limit.min <= row.min() and row.max() <= limit.max
        ]
        if rows:
            repeated = {n: x.repeat(len(rows), 0) for n, x in inputs.items()}
            repeated[name] = np.concatenate(rows)
            yield repeated, [LARGE_INTEGERS] * len(rows)
