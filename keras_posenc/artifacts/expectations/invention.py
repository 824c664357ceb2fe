"""Inputs to ask a model with, where nobody gave any."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from keras_posenc.artifacts.expectations.extremes import extreme_questions
from keras_posenc.artifacts.expectations.id_ranges import (
    can_be_asked,
    embedding_sizes,
    id_limits,
    known_integers,
    unknown_integers,
)
from keras_posenc.artifacts.expectations.questions import LONGEST, Question
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.signatures.signature import Signature
from keras_posenc.artifacts.signatures.strings import longest_text

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
