"""Test inputs made from a signature's inputs."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_posenc.checks import check_positive_int, is_number
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.every_id import every_id
from keras_posenc.export.probes.samples import Inputs, describe, fit_samples
from keras_posenc.export.signatures.cut_strings import (
    longest_text,
    vocabularies,
)
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within, read_by

# Longest test sequence if the model has no limit.
LONGEST = 512
# Of images, and of grids of 3 and of more axes: 64 by 64 pixels are 16 patches
# of 16, and if each is a token, attention to all fits into memory. 512 by 512
# would be 4,096 patches of 8.
_SIDES = {2: 64, 3: 32}
_SIDE = 16
# Of models with more weights (half a GB of float32) each case takes seconds, so
# there are fewer cases, and weights times the tokens of a sequence are limited.
MANY_WEIGHTS = 2**27
_MOST_WORK = 2**37
_LEAST_LONGEST = 64


@dataclasses.dataclass(frozen=True)
class Probe:
    """One batch of test inputs, and the model's outputs for it once known.

    Attributes:
        signature: Name of the signature.
        inputs: Arrays by the names of its inputs.
        outputs: The model's outputs, as arrays by name.
        is_required: Whether the model must accept the inputs.
        is_sample: Whether the inputs were given as a sample.
        is_drawn: Whether the model has sampled the targets that it scores.
        is_of_tables: Whether it is one of those in which each id occurs.
        text: The text that the inputs were made of, for a MediaPipe task.
        extremes: The extreme numbers of each example, as text, if it has some;
            see `extreme_probes`.
    """

    signature: str
    inputs: Inputs
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_required: bool = True
    is_sample: bool = False
    is_drawn: bool = False
    is_of_tables: bool = False
    text: str | None = None
    extremes: Sequence[str] = ()

    def __str__(self) -> str:
        text = describe(self.inputs) + ", each id" * self.is_of_tables
        if self.extremes:
            text += f", examples of {', '.join(dict.fromkeys(self.extremes))}"
        return text

    @property
    def longest_text(self) -> int | None:
        """The example with the longest invented text; None without any."""
        for value in self.inputs.values():
            if value.dtype == object and value.size and not self.is_sample:
                lengths = [
                    max(map(len, np.ravel(example)), default=0)
                    for example in value
                ]
                return int(np.argmax(lengths))
        return None

    @property
    def shorter(self) -> Self | None:
        """The same with invented texts half as long; None without any left."""
        texts = {
            name: value
            for name, value in self.inputs.items()
            if value.dtype == object
        }
        longest = max(
            (len(each) for value in texts.values() for each in value.flat),
            default=0,
        )
        if self.is_sample or not longest:
            return None
        cut = np.frompyfunc(lambda text: text[: longest // 2], 1, 1)
        halves = {name: cut(value) for name, value in texts.items()}
        return dataclasses.replace(self, inputs={**self.inputs, **halves})

    @property
    def examples(self) -> int:
        """Number of examples in the batch."""
        first = next(iter(self.inputs.values()), np.zeros(()))
        return len(first) if first.ndim else 1

    @property
    def is_nan(self) -> bool:
        """Whether it was made to see what NaN becomes."""
        return NAN in self.extremes


@dataclasses.dataclass(frozen=True)
class Probes:
    """The test inputs of a model, and how its outputs are compared.

    Attributes:
        signatures: The signatures to run.
        given: The samples that fit each signature, by its name.
        max_length: The longest sequence.
        is_given: Whether the length was given. Else the model may take no
            sequence that long, and for the axes of a grid see `side_of`.
        tolerance: The largest difference allowed, or None.
        limits: See `verify`.
        extra: Probes whose outputs come from elsewhere; iterated once, when the
            model is run.
        left_out: Default signatures without probes, because no valid ids are
            known for them.
        in_engine: See `Format`.
    """

    signatures: list[Signature]
    given: Mapping[str, Sequence[Inputs]]
    max_length: int = LONGEST
    is_given: bool = False
    tolerance: float | None = None
    limits: Mapping[str, float] | None = None
    extra: Iterable[Probe] = ()
    left_out: Sequence[Signature] = ()
    in_engine: bool = False

    def __post_init__(self) -> None:
        value = self.tolerance
        if value is not None and not (
            is_number(value) and 0 <= value < math.inf
        ):
            raise ValueError(
                "`tolerance` must be a finite number of at least 0, or None. "
                f"Received: tolerance={value!r}"
            )

    @classmethod
    def fit(
        cls,
        signatures: Sequence[Signature],
        samples: Any = None,
        max_length: int | None = None,
        *,
        fitted: Mapping[str, Sequence[Inputs]] | None = None,
        are_default: bool = False,
        **more: Any,
    ) -> Self:
        """Checks the arguments of `verify` and the exports, and fits samples.

        Args:
            signatures: The signatures to run.
            samples: See `verify`.
            max_length: By default what the signatures allow.
            fitted: Further samples, by the signature that they were fitted to.
            are_default: Whether the signatures are the default ones. Then those
                after the first are left out if the ids that they take are not
                known.
            **more: Further attributes.

        Raises:
            ValueError: Arguments that no model can be run with.
        """
        is_given = max_length is not None
        if max_length is None:
            limits = [
                *map(longest_text, signatures),
                *(Offers.of(each.model).longest_input for each in signatures),
            ]
            known = [limit for limit in limits if limit is not None]
            known += [LONGEST, *map(_affordable, signatures)]
            max_length = max(min(known), 1)
        max_length = check_positive_int("max_length", max_length)
        given: dict[str, Sequence[Inputs]] = {
            name: [*inputs, *(fitted or {}).get(name, [])]
            for name, inputs in fit_samples(signatures, samples).items()
        }
        left_out = {
            each.name: each
            for each in (signatures[1:] if are_default else ())
            if not (given[each.name] or _can_be_probed(each))
        }
        return cls(
            [each for each in signatures if each.name not in left_out],
            given,
            max_length,
            is_given,
            left_out=[*left_out.values()],
            **more,
        )


def _one(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    values = np.zeros(shape)
    values[tuple(size // 2 for size in shape)] = 1
    return values


# Numbers at which float32, or a rewritten operator, reaches its limits. Large
# inputs get only the first three: all would take long.
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
_NUMBERS = 2**18  # in all examples together


NAN = "NaN"


def extreme_probes(
    signature: Signature,
    lengths: Sequence[int],
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    takes: Callable[[Inputs], bool],
) -> Iterator[Probe]:
    """Yields batches whose examples hold one kind of extreme number each.

    They fill each input of floats that is no mask, and not made by the model's
    `made_inputs`; the other inputs are usual ones. If the model rejects that,
    each input is filled alone, with those kinds that the model accepts there:
    another input may be a position. First comes one example of NaN.

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
    yield from nan_probe(signature, next(iter(lengths)), invent, floats)
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


def nan_probe(
    signature: Signature,
    length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    floats: Sequence[str],
) -> Iterator[Probe]:
    """Yields a batch in which every second float is NaN."""
    inputs = invent(signature.shapes(1, length))
    for name in floats:
        inputs[name].flat[-1::-2] = np.nan
    if floats:
        yield Probe(signature.name, inputs, is_required=False, extremes=(NAN,))


LARGE_INTEGERS = "large integers"

# Beyond these, float32 and int32 hold no further whole numbers.
_BASES = (2**24 + 1, 2**31 + 1, 2**40 + 1)
_MOST_SHIFTED = 2**20  # numbers in one batch


def large_integers(
    signature: Signature, sample: Inputs, names: Sequence[str]
) -> Iterator[Probe]:
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
    bases = [first]
    for base in _BASES:
        if all(base <= limit.max for limit in limits.values()):
            at = {name: np.full_like(first[name], base) for name in names}
            bases.append({**first, **at})
    size = max(value.size for value in first.values())
    for name, base in itertools.product(names, bases):
        limit = limits[name]
        steps = [sign * 2**bit for bit in range(limit.bits) for sign in (1, -1)]
        steps = steps[:: max(len(steps) * size // _MOST_SHIFTED, 1)]
        rows = [base[name] + step for step in steps]
        rows = [
            row
            for row in rows
            if limit.min <= row.min() and row.max() <= limit.max
        ]
        if rows:
            inputs = {
                other: np.repeat(value, len(rows), axis=0)
                for other, value in base.items()
            }
            inputs[name] = np.concatenate(rows)
            yield Probe(
                signature.name,
                {
                    other: value
                    if specs[other].dtype == "string"
                    else value.astype(specs[other].dtype)
                    for other, value in inputs.items()
                },
                is_required=False,
                extremes=[LARGE_INTEGERS] * len(rows),
            )


def _batches(
    signature: Signature,
    length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    floats: Sequence[str],
    kinds: Sequence[str],
) -> Iterator[Probe]:
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
        yield Probe(signature.name, inputs, is_required=False, extremes=chosen)


_BATCHES = (1, 3)

_ODD = 17  # a length next to the shortest, the next one, and the longest

# With many weights: one token, a batch with padding, and the longest length.
_FEW_SIZES = ((1, 1), (3, 17))

# Most numbers of an input with several dynamic axes, 32 MB of float32: the
# longest length along each axis would be far more.
_GRID_NUMBERS = 2**23

_WORDS = "one two three four five six seven eight nine ten "

# The first text is the batch of one; the others are the batch of three.
_TEXTS = (
    "A short sentence, with punctuation.",
    "",
    "\t Ünïcödé \u4f60\u597d \n \U0001f642 caf\u00e9 ",
    _WORDS * 20,
)


def texts_beyond(length: int | None) -> Sequence[str]:
    """Returns texts, one of which has more words than a length.

    It has at least 200 words, and at most as many as `LONGEST` needs.
    """
    repeats = min(length or 0, LONGEST) // 10 + 1
    return (*_TEXTS[:-1], _WORDS * max(repeats, 20))


def make_probes(
    signature: Signature,
    given: Sequence[Inputs],
    max_length: int,
    takes: Callable[[Inputs], bool],
    smallest: int = 1,
) -> Iterator[Probe]:
    """Yields batches of inputs to run a model with.

    Given samples come first. Then, if all inputs can be invented, a grid:
    batches of 1 and 3 (or several of the signature's own size), each with
    lengths of 1, 2, an odd one and the longest (or its own; see `_longest` for
    inputs of several dynamic axes, of which each is the longest once, too:
    an image of either orientation); examples with padding at their end, and
    examples of nothing else; the lowest and the highest id. Looked-up values
    come from the lookup's vocabulary. One text is longer than its tokenizer
    allows. Of a model with `MANY_WEIGHTS`, the grid is `_FEW_SIZES`, and the
    longest length in a batch of 1.

    The model must accept samples and the longest length; it may reject shorter
    ones. Integers that go to no embedding, and floats called a mask, are 1 for
    tokens and 0 for padding, or count the tokens; 8-bit images have all their
    values. Last come extreme floats: see `extreme_probes`.

    Args:
        signature: The signature to make inputs for.
        given: The samples that are its inputs.
        max_length: The longest sequence.
        takes: Returns whether the model accepts some inputs. Called if it has
            embeddings of several sizes, or several integer inputs, to find
            which input goes to which.
        smallest: The smallest length that the model takes.

    Raises:
        ValueError: The signature takes integers, and neither an `Embedding` nor
            a vocabulary nor samples limit them.
    """
    for inputs in given:
        yield Probe(signature.name, inputs, is_sample=True)
    own_probes = Offers.of(signature.model).own_probes
    if own_probes is not None:
        for each in own_probes():
            yield Probe(signature.name, dict(each))
        return
    oracle = signature.oracle
    if oracle is not None:
        if given and not _can_be_probed(oracle.base):
            return
        for probe in make_probes(
            oracle.base,
            [],
            max_length,
            lambda inputs: takes(oracle.widen(inputs)),
            smallest,
        ):
            yield dataclasses.replace(
                probe,
                signature=signature.name,
                inputs=oracle.widen(probe.inputs),
            )
        return
    max_length = _longest(signature, max_length)
    sizes = _embedding_sizes(signature)
    known = _known_integers(signature, sizes)
    if not sizes and _unknown_integers(signature, known):
        if not given:
            raise ValueError(
                f"Signature '{signature.name}' {needs_samples(signature)}"
            )
        return
    texts = texts_beyond(longest_text(signature))
    limits = _id_limits(signature, sizes, known, max_length, takes)
    made = Offers.of(signature.model).made_inputs
    rng = np.random.default_rng(0)
    lengths = sorted(
        {
            *(min(smallest + more, max_length) for more in (0, 1)),
            min(max(_ODD, smallest), max_length),
            max_length,
        }
    )

    def invent(shapes: Mapping[str, tuple[int, ...]]) -> Inputs:
        return {
            name: made[name](rng, shape).astype(signature.specs[name].dtype)
            if name in made
            else _choose(rng, shape, known[name])
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
    grid: Iterable[tuple[int, int]] = itertools.product(_BATCHES, lengths)
    if has_many_weights(signature):
        # A source and a target together are as long as one sequence.
        axes = [spec.shape[1:2] for spec in signature.specs.values()]
        max_length = max(max_length // max(axes.count((None,)), 1), 1)
        few = {
            (batch, min(max(length, smallest), max_length))
            for batch, length in _FEW_SIZES
        }
        grid = sorted({*few, (1, max_length)}, key=lambda size: size[::-1])
    for batch, length in grid:
        shapes = signature.shapes(batch, length)
        key = tuple(shapes.values())
        if key not in seen:  # a static shape has only one
            seen.add(key)
            is_static = key == tuple(signature.shapes(batch, 0).values())
            is_required = is_static or length >= max_length
            for inputs in _in_batches(signature, shapes, invent):
                yield Probe(signature.name, inputs, is_required=is_required)
                is_required = False
    values = {name: np.arange(most) for name, most in limits.items() if most}
    for inputs in every_id(
        signature, {**known, **values}, limits, max_length, invent, takes
    ):
        yield Probe(
            signature.name, inputs, is_required=False, is_of_tables=True
        )
    for inputs in _oblong(signature, max_length, invent, takes):
        yield Probe(signature.name, inputs, is_required=False)
    tried = dict.fromkeys((min(max(_ODD, smallest), max_length), max_length))
    yield from extreme_probes(signature, [*tried], invent, takes)


def _weights(signature: Signature) -> int:
    """Returns how many weights the model has."""
    return sum(math.prod(each.shape) for each in signature.model.weights)


def has_many_weights(signature: Signature) -> bool:
    """Returns whether each run of its model takes seconds."""
    return _weights(signature) > MANY_WEIGHTS


def _affordable(signature: Signature) -> int:
    """Returns the longest test sequence that its weights allow."""
    if not has_many_weights(signature):
        return LONGEST
    longest = _MOST_WORK // _weights(signature)
    return min(max(longest, _LEAST_LONGEST), LONGEST)


def _in_batches(
    signature: Signature,
    shapes: Mapping[str, tuple[int, ...]],
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
) -> Iterator[Inputs]:
    """Yields a batch; of a smaller static batch so many that all cases appear.

    The cases are those of the largest of `_BATCHES`.
    """
    sizes = {each.shape[:1] for each in signature.specs.values()}
    if len(sizes) != 1 or sizes & {(), (0,), (None,)}:
        yield invent(shapes)
        return
    ((size,),) = sizes
    count = -(-max(_BATCHES) // size)
    inputs = invent(
        {name: (count * size, *shape[1:]) for name, shape in shapes.items()}
    )
    for start in range(0, count * size, size):
        yield {
            name: value[start : start + size] for name, value in inputs.items()
        }


def _oblong(
    signature: Signature,
    length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Inputs],
    takes: Callable[[Inputs], bool],
) -> Iterator[Inputs]:
    """Yields grids in which one axis is the longest, for each axis in turn.

    Squares would not show that a file takes the height for the width. The other
    axes are half as long. If the model rejects that, they are shorter by a
    divisor of the length, of which one is the size of a patch.
    """
    shorter = [length // 2] * (length > 1)
    for less in range(length // 2, 0, -1):
        if length % less == 0:
            shorter.append(length - less)
    for axis in range(signature.grid_axes):
        for others in dict.fromkeys(shorter):
            shapes = signature.shapes(1, length, axis, others)
            batches = [*_in_batches(signature, shapes, invent)]
            if takes(batches[0]):
                yield from batches
                break


def _longest(signature: Signature, max_length: int) -> int:
    """Returns the longest sequence, or the length of each axis of a grid."""
    if not signature.grid_axes:
        return max_length
    longest = max_length
    for spec in signature.specs.values():
        if count := spec.shape[1:].count(None):
            batch, *others = spec.shape
            cell = math.prod(size or 1 for size in others)
            room = _GRID_NUMBERS / ((batch or max(_BATCHES)) * cell)
            longest = min(longest, max(int(room ** (1 / count)), 1))
    return longest


def side_of(signature: Signature, max_length: int) -> int:
    """Returns the length of each axis of a grid, if none was given.

    It is `max_length` for signatures without a grid.
    """
    axes = signature.innermost.grid_axes
    return min(max_length, _SIDES.get(axes, _SIDE)) if axes else max_length


def _choose(
    rng: np.random.Generator, shape: tuple[int, ...], values: np.ndarray
) -> np.ndarray:
    """Returns values of a vocabulary, without repeats while there are more."""
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
    if limit is None:  # a mask of pairs of tokens
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
    """Returns which tokens are real, (batch, seq), or how many, (batch,)."""
    values = np.ones(shape, dtype)
    if len(shape) == 2:
        _pad(values)
    return values


def _pad(values: np.ndarray) -> None:
    """Pads the second example from its middle on, and all of the third."""
    values[1:2, (values.shape[1] + 1) // 2 :] = 0
    values[2:3] = 0


def needs_samples(signature: Signature) -> str:
    """Returns why a signature of integers needs samples, and an example."""
    if signature.oracle is not None:
        return needs_samples(signature.oracle.base)
    arrays = []
    for name, spec in signature.specs.items():
        shape = tuple(2 if size is None else size for size in spec.shape)
        made = f"np.zeros({shape}, '{spec.dtype}')"
        if spec.dtype == "string":
            made = f"np.full({shape}, 'text')"
        arrays.append(f"'{name}': {made}")
    return (
        "takes integers, and no Embedding layer limits them: give some, as in "
        f"`samples={{{', '.join(arrays)}}}` (--samples FILE.npz)"
    )


def _embedding_sizes(signature: Signature) -> list[int]:
    """Returns how many ids the model's embeddings take, the largest first."""
    return sorted(
        {
            layer.input_dim
            for layer in layers_within(signature.model)
            if isinstance(layer, keras.layers.Embedding)
        },
        reverse=True,
    )


def _can_be_probed(signature: Signature) -> bool:
    """Returns whether all integers that the signature takes are known."""
    sizes = _embedding_sizes(signature)
    known = _known_integers(signature, sizes)
    if Offers.of(signature.model).own_probes is not None:
        return True
    return bool(sizes or not _unknown_integers(signature, known))


def _known_integers(
    signature: Signature, sizes: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns values for integer inputs that do not depend on embeddings.

    These are the words of a vocabulary, what the model says of its inputs, the
    classes that a `CategoryEncoding` takes, and all values of 8 bits if the
    input holds no ids: an image has more axes than a sequence, or there is no
    embedding.
    """
    return {
        **_categories(signature),
        **{
            name: np.arange(
                np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max + 1
            ).astype(spec.dtype)
            for name, spec in signature.specs.items()
            if spec.dtype in ("int8", "uint8")
            and (len(spec.shape) > 3 or not (sizes or "mask" in name))
        },
        **vocabularies(signature),
    }


def _categories(signature: Signature) -> dict[str, np.ndarray]:
    """Returns the classes of inputs that a `CategoryEncoding` reads itself."""
    model = signature.model
    if not getattr(model, "inputs", None):
        return {}
    sizes = {
        id(tensor): layer.num_tokens
        for layer in layers_within(model)
        if isinstance(layer, keras.layers.CategoryEncoding)
        for tensor in read_by(layer)
    }
    return {
        name: np.arange(sizes[id(tensor)]).astype(spec.dtype)
        for (name, spec), tensor in zip(
            signature.specs.items(), model.inputs, strict=False
        )
        if id(tensor) in sizes and "int" in spec.dtype
    }


def _unknown_integers(
    signature: Signature, known: Mapping[str, np.ndarray]
) -> list[str]:
    """Returns integer inputs whose values no vocabulary limits."""
    made = Offers.of(signature.model).made_inputs
    return [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and name not in {*known, *made}
    ]


def _id_limits(
    signature: Signature,
    sizes: Sequence[int],
    known: Mapping[str, np.ndarray],
    max_length: int,
    takes: Callable[[Inputs], bool],
) -> dict[str, int | None]:
    """Returns how many ids each integer input takes; None for any number.

    Only of inputs whose values are not known otherwise. The embedding that an
    input goes to rejects a larger id, however deep in the model it is. An input
    that accepts an id too large for all embeddings goes to none.
    """
    integers = _unknown_integers(signature, known)
    if not sizes or not integers:
        return {}
    shapes = signature.shapes(1, max_length)
    made = Offers.of(signature.model).made_inputs
    rng = np.random.default_rng(0)
    lowest = {
        name: (
            made[name](rng, shape).astype(signature.specs[name].dtype)
            if name in made
            else np.full(shape, known[name][0], known[name].dtype)
            if name in known
            else np.full(shape, "", dtype=object)
            if (dtype := signature.specs[name].dtype) == "string"
            else np.zeros(shape, dtype)
        )
        for name, shape in shapes.items()
    }

    def accepts(name: str, highest: int) -> bool:
        values = np.full_like(lowest[name], highest)
        return takes({**lowest, name: values})

    limits: dict[str, int | None] = {}
    *larger, smallest = sizes
    for name in integers:
        most = np.iinfo(signature.specs[name].dtype).max + 1
        limits[name] = min(smallest, most)
        if (
            len(integers) + len(known) + len(made) > 1
            and sizes[0] < most
            and accepts(name, sizes[0])
        ):
            limits[name] = None
            continue
        for size in larger:
            if size <= most and accepts(name, size - 1):
                limits[name] = size
                break
    return limits
