"""Test inputs of numbers at which a runtime reaches its limits."""

import functools
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

    They fill each input of floats that is no mask, and not made by the model's
    `made_inputs`; the other inputs are usual ones. If the model rejects that,
    each input is filled alone, with those kinds that the model accepts there:
    another input may be a position. First comes an example in which every
    second float is NaN, but not the last one.

    Args:
        signature: The signature to make inputs for.
        lengths: Lengths of its dynamic axes except the batch: the first that
            the model accepts is used.
        invent: Makes its usual inputs, of these shapes by name.
        takes: Returns whether the model accepts some inputs.
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
    batches = functools.partial(_batches, signature, invent)
    for length in lengths:
        found = [*batches(length, floats, [*_KINDS])]
        if all(takes(inputs) for inputs, _ in found):
            yield from found
            return
    for name in floats:
        for length in lengths:
            kinds = [
                kind
                for kind in _KINDS
                if all(takes(x) for x, _ in batches(length, [name], [kind]))
            ]
            if kinds:
                yield from batches(length, [name], kinds)
                break


def _batches(
    signature: Signature,
    invent: Invent,
    length: int,
    floats: Sequence[str],
    kinds: Sequence[str],
) -> Iterator[Batch]:
    """Yields one batch, or several if the signature's own batch is small."""
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
        yield inputs, chosen


# Beyond these, float32 and int32 hold no further whole numbers.
_BASES = (2**24 + 1, 2**31 + 1, 2**40 + 1)
_MOST_SHIFTED = 2**20  # numbers in one batch


def large_integers(
    signature: Signature, sample: Inputs, names: Sequence[str]
) -> Iterator[Batch]:
    """Yields batches of integers that float32, or int32, cannot hold.

    One input is shifted by each power of two, from a sample, and from where
    float32 or int32 end. Formats may compare integers as float32.

    Args:
        signature: The signature, of a dynamic batch.
        sample: Its inputs in a sample.
        names: The inputs of integers that may have any value.
    """
    first = {name: value[:1].astype(object) for name, value in sample.items()}
    specs = signature.specs
    if any(not spec.shape or spec.shape[0] for spec in specs.values()) or any(
        not value.size for value in first.values()
    ):
        return
    limits = {name: np.iinfo(specs[name].dtype) for name in names}
    most = min((limit.max for limit in limits.values()), default=0)
    bases = [first] + [
        {**first, **{name: np.full_like(first[name], base) for name in names}}
        for base in _BASES
        if base <= most
    ]
    size = max(value.size for value in first.values())
    for name, base in itertools.product(names, bases):
        limit = limits[name]
        steps = [sign * 2**bit for bit in range(limit.bits) for sign in (1, -1)]
        steps = steps[:: max(len(steps) * size // _MOST_SHIFTED, 1)]
        shifted = [base[name] + step for step in steps]
        rows = [
            row
            for row in shifted
            if limit.min <= row.min() and row.max() <= limit.max
        ]
        if rows:
            inputs = {n: x.repeat(len(rows), axis=0) for n, x in base.items()}
            inputs[name] = np.concatenate(rows)
            yield (
                {
                    n: x
                    if specs[n].dtype == "string"
                    else x.astype(specs[n].dtype)
                    for n, x in inputs.items()
                },
                [LARGE_INTEGERS] * len(rows),
            )
