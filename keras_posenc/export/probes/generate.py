"""Test inputs made from a signature's inputs."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_posenc.checks import check_positive_int, is_number
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.every_id import every_id, tables
from keras_posenc.export.probes.extremes import (
    NAN,
    Invent,
    Shape,
    extreme_floats,
)
from keras_posenc.export.probes.graphs import Graphs
from keras_posenc.export.probes.samples import Inputs, describe, fit_samples
from keras_posenc.export.signatures.cut_strings import (
    longest_text,
    vocabularies,
)
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within, read_by

# Longest test sequence if the model has no limit.
LONGEST = 512
# Cells of a grid, 64 by 64 pixels: if each is a token, attention to all fits
# into memory.
_CELLS = 2**12


@dataclasses.dataclass(frozen=True)
class Probe:
    """One batch of test inputs, and the model's outputs for it once known."""

    signature: str
    inputs: Inputs
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_required: bool = False  # the model must accept it
    is_sample: bool = False
    is_drawn: bool = False  # the model has sampled the targets that it scores
    is_of_tables: bool = False  # one of those in which each id occurs
    extremes: Sequence[str] = ()  # of each example, see `extremes.py`

    def __str__(self) -> str:
        text = describe(self.inputs) + ", each id" * self.is_of_tables
        if self.extremes:
            text += f", examples of {', '.join(dict.fromkeys(self.extremes))}"
        return text

    @property
    def is_nan(self) -> bool:
        """Whether it was made to see what NaN becomes."""
        return NAN in self.extremes

    @property
    def examples(self) -> int:
        """Number of examples in the batch."""
        first = next(iter(self.inputs.values()), np.zeros(()))
        return len(first) if first.ndim else 1


@dataclasses.dataclass(frozen=True)
class Probes:
    """The test inputs of a model, and how its outputs are compared."""

    signatures: list[Signature]
    given: Mapping[str, Sequence[Inputs]]  # samples by signature
    max_length: int = LONGEST
    is_given: bool = False  # `max_length`: else it may be more than is taken
    tolerance: float | None = None
    limits: Mapping[str, float] | None = None
    left_out: Sequence[Signature] = ()  # for which no valid ids are known
    in_engine: bool = False

    @classmethod
    def fit(
        cls,
        signatures: Sequence[Signature],
        samples: Any = None,
        max_length: int | None = None,
        *,
        fitted: Mapping[str, Sequence[Inputs]] | None = None,
        are_default: bool = False,
        tolerance: float | None = None,
        **more: Any,
    ) -> Self:
        """Checks arguments, fits samples and leaves default signatures out."""
        if tolerance is not None and not (
            is_number(tolerance) and 0 <= tolerance < math.inf
        ):
            raise ValueError(
                "`tolerance` must be a finite number of at least 0, or None. "
                f"Received: tolerance={tolerance!r}"
            )
        longest = max_length
        if longest is None:
            limits = [
                LONGEST,
                *map(longest_text, signatures),
                *(Offers.of(each.model).longest_input for each in signatures),
            ]
            longest = max(min(x for x in limits if x is not None), 1)
        given: dict[str, Sequence[Inputs]] = {
            name: [*inputs, *(fitted or {}).get(name, [])]
            for name, inputs in fit_samples(signatures, samples).items()
        }
        left_out = [
            each
            for each in (signatures[1:] if are_default else ())
            if not (given[each.name] or _can_be_probed(each))
        ]
        return cls(
            [each for each in signatures if each not in left_out],
            given,
            check_positive_int("max_length", longest),
            max_length is not None,
            tolerance,
            left_out=left_out,
            **more,
        )


_BATCH = 3  # examples of the larger batches: full, padded, all padding

_ODD = 17  # a length next to the shortest, the next one, and the longest

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
    """Returns texts, one of at least 200 words and of more than a length."""
    repeats = min(length or 0, LONGEST) // 10 + 1
    return (*_TEXTS[:-1], _WORDS * max(repeats, 20))


def make_probes(
    signature: Signature,
    given: Sequence[Inputs],
    max_length: int,
    takes: Callable[[Inputs], bool],
    smallest: int = 1,
    graphs: Graphs | None = None,
) -> Iterator[Probe]:
    """Yields samples, then invented batches of several sizes, ids and extremes.

    The same sizes have the same inputs each time. The model must accept samples
    and the longest length; it may reject shorter ones.
    """
    probe = functools.partial(Probe, signature.name)
    for inputs in given:
        yield probe(inputs, is_required=True, is_sample=True)
    own_probes, oracle = Offers.of(signature.model).own_probes, signature.oracle
    if own_probes is not None:
        for each in own_probes():
            yield probe(dict(each), is_required=True)
        return
    if not _can_be_probed(signature):
        if given:
            return
        raise ValueError(
            f"Signature '{signature.name}' {needs_samples(signature)}"
        )
    if oracle is not None:
        for found in make_probes(
            oracle.base,
            [],
            max_length,
            lambda inputs: takes(oracle.widen(inputs)),
            smallest,
            graphs,
        ):
            yield dataclasses.replace(
                found,
                signature=signature.name,
                inputs=oracle.widen(found.inputs),
            )
        return
    max_length = _longest(signature, max_length)
    middle = min(max(_ODD, smallest), max_length)
    values = _values(signature)
    limits = _id_limits(signature, values, graphs or Graphs(signature))
    invent = _inventor(signature, values, limits)
    for shapes, is_required in _grid(signature, smallest, max_length):
        for inputs in _in_batches(signature, shapes, invent):
            yield probe(inputs, is_required=is_required)
            is_required = False
    known = {name: each for name, each in values.items() if each is not None}
    known |= {name: np.arange(most) for name, most in limits.items() if most}
    for inputs in every_id(signature, known, limits, max_length, invent, takes):
        yield probe(inputs, is_of_tables=True)
    for inputs in _oblong(signature, max_length, invent, takes):
        yield probe(inputs)
    tried = [*dict.fromkeys((middle, max_length))]
    for inputs, kinds in extreme_floats(signature, tried, invent, takes):
        yield probe(inputs, extremes=kinds)


def _grid(
    signature: Signature, smallest: int, longest: int
) -> Iterator[tuple[dict[str, Shape], bool]]:
    """Yields the shapes of a grid, and whether the model must accept them."""
    odd = max(_ODD, smallest)
    few, many = 1, _BATCH
    grid = [(few, smallest), (many, smallest + 1), (many, odd), (few, longest)]
    if signature.is_large and smallest + 1 < min(odd, longest):
        del grid[1]  # as in the next one, rows are padded
        if Offers.of(signature.model).rescore is not None:
            # A generator's steps are hundreds, and alike for each length.
            grid = [(few, longest), (many, odd)]
    seen = []
    for batch, length in grid:
        shapes = signature.shapes(batch, min(length, longest))
        if shapes not in seen:  # a static shape has only one
            seen.append(shapes)
            is_static = shapes == signature.shapes(batch, 0)
            yield shapes, is_static or length >= longest


def _in_batches(
    signature: Signature, shapes: Mapping[str, Shape], invent: Invent
) -> Iterator[Inputs]:
    """Yields a batch; of a static one as many as make `_BATCH` examples."""
    sizes = {each.shape[:1] for each in signature.specs.values()}
    if len(sizes) != 1 or sizes & {(), (0,), (None,)}:
        yield invent(shapes)
        return
    ((size,),) = sizes
    count = -(-_BATCH // size)
    inputs = invent(
        {name: (count * size, *shape[1:]) for name, shape in shapes.items()}
    )
    for start in range(0, count * size, size):
        yield {n: value[start : start + size] for n, value in inputs.items()}


def _oblong(
    signature: Signature,
    length: int,
    invent: Invent,
    takes: Callable[[Inputs], bool],
) -> Iterator[Inputs]:
    """Yields grids that are no squares: height and width may be mixed up."""
    for axis in range(signature.grid_axes if length > 1 else 0):
        shapes = signature.shapes(1, length, axis, length // 2)
        batches = [*_in_batches(signature, shapes, invent)]
        if takes(batches[0]):
            yield from batches


def _longest(signature: Signature, max_length: int) -> int:
    shapes = [spec.shape for spec in signature.specs.values()]
    longest = max_length
    for batch, *others in shapes if signature.grid_axes else ():
        if count := others.count(None):
            cell = math.prod(size or 1 for size in others)
            room = _GRID_NUMBERS / ((batch or _BATCH) * cell)
            longest = min(longest, max(int(room ** (1 / count)), 1))
    return longest


def side_of(signature: Signature, max_length: int) -> int:
    """Returns the length of each axis of a grid, or else `max_length`."""
    axes = signature.innermost.grid_axes
    return min(max_length, round(_CELLS ** (1 / axes))) if axes else max_length


# ---- What inputs are made of

Maker = Callable[[np.random.Generator, Shape], np.ndarray]


def _inventor(
    signature: Signature,
    values: Mapping[str, np.ndarray | None],
    limits: Mapping[str, int | None],
) -> Invent:
    """Returns a function that makes inputs of some shapes, by name."""
    texts = texts_beyond(longest_text(signature))
    made = Offers.of(signature.model).made_inputs

    def maker(name: str, spec: keras.InputSpec) -> Maker:
        if name in made:
            return made[name]
        if (known := values.get(name)) is not None:
            return functools.partial(_choose, known)
        if spec.dtype == "string":
            return functools.partial(_some_texts, texts)
        if spec.dtype == "bool":
            return lambda rng, shape: rng.random(shape) < 0.7
        limit = limits.get(name)
        is_mask = limit is None and (name in limits or "mask" in name)
        if is_mask and len(spec.shape) < 3:
            return _count
        if "int" in spec.dtype:
            return functools.partial(_ids, limit or 2)  # 2 for pairs of tokens
        is_image = len(spec.shape) == 4 and spec.shape[-1] in (1, 3, 4)
        return _images if is_image else _floats

    makers = {name: maker(name, x) for name, x in signature.specs.items()}

    def invent(shapes: Mapping[str, Shape]) -> Inputs:
        sizes = [size for shape in shapes.values() for size in shape]
        rng = np.random.default_rng([0, *sizes])
        found = {name: makers[name](rng, x) for name, x in shapes.items()}
        return {
            name: x
            if x.dtype == object
            else x.astype(signature.specs[name].dtype)
            for name, x in found.items()
        }

    return invent


def _choose(
    values: np.ndarray, rng: np.random.Generator, shape: Shape
) -> np.ndarray:
    """Returns values of a vocabulary, without repeats while there are more."""
    count = math.prod(shape)
    rounds = -(-count // len(values))
    shuffled = [rng.permutation(values) for _ in range(rounds)]
    return np.concatenate(shuffled or [values])[:count].reshape(shape)


def _some_texts(
    texts: Sequence[str], rng: np.random.Generator, shape: Shape
) -> np.ndarray:
    count = math.prod(shape)
    start = int(count > 1)
    chosen = itertools.islice(itertools.cycle(texts), start, start + count)
    return np.array([*chosen], dtype=object).reshape(shape)


def _floats(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    values = rng.standard_normal(shape)
    if len(shape) > 2:  # (batch, seq, ...)
        _pad(values)
    return values


def _images(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Returns floats, and pixels from 0 to 255 in each second example."""
    values = _floats(rng, shape)
    # Divided by 255, others are black images.
    values[::2] = rng.integers(0, 256, values[::2].shape)
    return values


def _ids(limit: int, rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Returns ids, with the highest one, the lowest one, and padding."""
    values = rng.integers(min(1, limit - 1), limit, shape)
    flat = values.reshape(shape[0] if shape else 1, -1)  # a view
    if flat.shape[1] > 1:
        flat[0, 0], flat[0, -1] = limit - 1, 0
    else:
        flat[0, :] = limit - 1
    _pad(flat)
    return values


def _count(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Returns which tokens are real, (batch, seq), or how many, (batch,)."""
    values = np.ones(shape)
    if len(shape) == 2:
        _pad(values)
    return values


def _pad(values: np.ndarray) -> None:
    """Pads the second example from its middle on, and all of the third."""
    values[1:2, (values.shape[1] + 1) // 2 :] = 0
    values[2:3] = 0


def needs_samples(signature: Signature) -> str:
    """Returns why a signature of integers needs samples, and an example."""
    arrays = []
    for name, spec in signature.innermost.specs.items():
        shape = tuple(2 if size is None else size for size in spec.shape)
        made = f"np.zeros({shape}, '{spec.dtype}')"
        if spec.dtype == "string":
            made = f"np.full({shape}, 'text')"
        arrays.append(f"'{name}': {made}")
    return (
        "takes integers, and no Embedding layer limits them: give some, as in "
        f"`samples={{{', '.join(arrays)}}}`"
    )


def _can_be_probed(signature: Signature) -> bool:
    """Returns whether all integers that the signature takes are known."""
    signature = signature.innermost
    return bool(
        Offers.of(signature.model).own_probes is not None
        or tables(signature)
        or not any(values is None for values in _values(signature).values())
    )


def _values(signature: Signature) -> dict[str, np.ndarray | None]:
    """Returns all values that inputs take; None if only a table limits them.

    8 bits are no ids if they have more axes than a sequence, as images have.
    """
    found: dict[str, np.ndarray | None] = {}
    for name, spec in signature.specs.items():
        if "int" in spec.dtype:
            found[name] = None
        if spec.dtype in ("int8", "uint8") and (
            len(spec.shape) > 3 or not (tables(signature) or "mask" in name)
        ):
            limits = np.iinfo(spec.dtype)
            values = np.arange(limits.min, limits.max + 1, dtype=spec.dtype)
            found[name] = values
    found |= {**_categories(signature), **vocabularies(signature)}
    made = Offers.of(signature.model).made_inputs
    return {name: each for name, each in found.items() if name not in made}


def _categories(signature: Signature) -> dict[str, np.ndarray]:
    """Returns the classes of inputs that a `CategoryEncoding` reads itself."""
    sizes = {
        id(tensor): layer.num_tokens
        for layer in layers_within(signature.model)
        if isinstance(layer, keras.layers.CategoryEncoding)
        for tensor in read_by(layer)
    }
    inputs = getattr(signature.model, "inputs", None) or []
    pairs = zip(signature.specs.items(), inputs, strict=False)
    return {
        name: np.arange(sizes[id(tensor)]).astype(spec.dtype)
        for (name, spec), tensor in pairs
        if id(tensor) in sizes and "int" in spec.dtype
    }


def _id_limits(
    signature: Signature, values: Mapping[str, Any], graphs: Graphs
) -> dict[str, int | None]:
    """Returns how many ids inputs of unknown values take; None for any."""
    integers = [name for name, known in values.items() if known is None]
    sizes = {table.input_dim for table in tables(signature)}
    limits = {name: graphs.ids_of(name, sizes) for name in integers if sizes}
    for name, size in limits.items():
        if size is None and len(signature.specs) == 1:
            size = min(sizes)
        if size is not None:
            most = int(np.iinfo(signature.specs[name].dtype).max) + 1
            limits[name] = min(size, most)
    return limits
