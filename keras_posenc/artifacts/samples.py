"""Inputs to verify an artifact with."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_posenc.artifacts.lookups import vocabularies
from keras_posenc.artifacts.signatures import Signature, flatten_layers

_BATCHES = (1, 3)
_LENGTHS = (1, 2, 17)
# The most numbers in an input of several dynamic axes, which the longest of
# each would make too many: 32 MB of float32.
_GRID_NUMBERS = 2**23
# The first is the batch of one; the batch of three is the others.
TEXTS = (
    "A short sentence, with punctuation.",
    "",
    "\t Ünïcödé \u4f60\u597d \n \U0001f642 caf\u00e9 ",
    "one two three four five six seven eight nine ten " * 20,
)

Inputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Question:
    """One batch of inputs for a signature.

    Attributes:
        inputs: Arrays by the names of its inputs.
        is_required: Whether the model must take them.
        is_sample: Whether they were given, and not invented.
    """

    inputs: Inputs
    is_required: bool = True
    is_sample: bool = True


def make_cases(
    signature: Signature,
    given: Sequence[Inputs],
    max_length: int,
    takes: Callable[[Inputs], bool],
) -> Iterator[Question]:
    """Yields batches of inputs to ask a model.

    Given samples come first. Then, if all inputs can be invented, a grid:
    batches of 1 and 3 (or the signature's own), each length of 1, 2, an odd one
    and the longest (or its own; `_longest` says what that is for a grid); rows
    with padding at their end, and rows of nothing else; the lowest and the
    highest id. What the model looks up is of its own vocabulary.
    Samples and the longest are asked for; a shorter length a model may refuse.
    Integers that go to no embedding, and floats that are called a mask, are 1
    where there is a token and 0 where there is padding, or count the tokens.

    Args:
        signature: What to make inputs for.
        given: The samples that are its inputs; see `fit_samples`.
        max_length: The longest sequence.
        takes: Whether the model takes some inputs. Asked where it has
            embeddings of several sizes, or several integer inputs, to find
            which input goes to which.

    Raises:
        ValueError: The signature takes integers, and neither an `Embedding`
            nor a vocabulary nor samples say which.
    """
    yield from map(Question, given)
    origin = signature.origin
    if origin is not None:
        if given and not _can_be_asked(origin.signature, None):
            return
        for question in make_cases(
            origin.signature,
            [],
            max_length,
            lambda inputs: takes(origin.widen(inputs)),
        ):
            yield dataclasses.replace(
                question, inputs=origin.widen(question.inputs)
            )
        return
    max_length = _longest(signature, max_length)
    sizes = _embedding_sizes(signature)
    known = vocabularies(signature)
    if not sizes and _unknown_integers(signature, known):
        if not given:
            raise ValueError(
                f"Signature '{signature.name}' takes integers, and no "
                "Embedding layer says how large they may be: give `samples` "
                f"(--samples FILE.npz), such as {_example(signature)}"
            )
        return
    limits = _id_limits(signature, sizes, known, max_length, takes)
    rng = np.random.default_rng(0)
    lengths = sorted({min(length, max_length) for length in _LENGTHS})
    if max_length not in lengths:
        lengths.append(max_length)
    seen = set()
    for batch, length in itertools.product(_BATCHES, lengths):
        shapes = _shapes(signature, batch, length)
        key = tuple(shapes.values())
        if key not in seen:  # a static shape has only one
            seen.add(key)
            inputs = {
                name: _choose(rng, shape, known[name])
                if name in known
                else _invent(
                    rng,
                    shape,
                    signature.specs[name].dtype,
                    limits.get(name),
                    is_mask=name in limits or "mask" in name,
                )
                for name, shape in shapes.items()
            }
            is_static = key == tuple(_shapes(signature, batch, 0).values())
            yield Question(
                inputs, is_static or length == max_length, is_sample=False
            )


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


def _shapes(
    signature: Signature, batch: int, length: int
) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(
            (batch if axis == 0 else length) if size is None else size
            for axis, size in enumerate(spec.shape)
        )
        for name, spec in signature.specs.items()
    }


def _choose(
    rng: np.random.Generator, shape: tuple[int, ...], values: np.ndarray
) -> np.ndarray:
    """Some of a vocabulary, none twice until it has no more."""
    count = math.prod(shape)
    rounds = -(-count // len(values))
    shuffled = [rng.permutation(values) for _ in range(rounds)]
    return np.concatenate(shuffled or [values])[:count].reshape(shape)


def _invent(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    dtype: str,
    limit: int | None,
    is_mask: bool,
) -> np.ndarray:
    if dtype == "string":
        count = int(np.prod(shape, dtype=int))
        texts = [
            TEXTS[(index + (count > 1)) % len(TEXTS)] for index in range(count)
        ]
        return np.array(texts, dtype=object).reshape(shape)
    if limit is None and is_mask and dtype != "bool" and len(shape) < 3:
        return _count(shape, dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.7
    if "int" not in dtype:
        values = rng.standard_normal(shape).astype(dtype)
        if len(shape) > 2:  # (batch, seq, ...)
            _pad(values)
        return values
    assert limit is not None
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


def _embedding_sizes(signature: Signature) -> list[int]:
    """How many ids the model's embeddings take, the largest first."""
    return sorted(
        {
            layer.input_dim
            for layer in flatten_layers(signature.model)
            if isinstance(layer, keras.layers.Embedding)
        },
        reverse=True,
    )


def without_unknown_ids(
    signatures: Sequence[Signature], samples: Any
) -> list[Signature]:
    """The default signatures, without the second if none can ask it.

    That one, of ids, is an addition to the strings that were asked for. Its
    ids may be no embedding's, and no sample's either.
    """
    default, *more = signatures
    return [
        default,
        *(signature for signature in more if _can_be_asked(signature, samples)),
    ]


def _can_be_asked(signature: Signature, samples: Any) -> bool:
    """Whether anything says which integers the signature takes, if any."""
    return bool(
        _embedding_sizes(signature)
        or not _unknown_integers(signature, vocabularies(signature))
        or fitting_samples(signature, samples)
    )


def _unknown_integers(
    signature: Signature, known: Mapping[str, np.ndarray]
) -> list[str]:
    """The inputs of integers of which no vocabulary says which."""
    return [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and name not in known
    ]


def _id_limits(
    signature: Signature,
    sizes: Sequence[int],
    known: Mapping[str, np.ndarray],
    max_length: int,
    takes: Callable[[Inputs], bool],
) -> dict[str, int | None]:
    """The number of ids that each integer input takes; None for any number.

    Of those that are not known otherwise.

    The embedding that an input goes to refuses an id too large for it, however
    deep in the model it is; an input that takes one too large for all of them
    goes to none.
    """
    integers = _unknown_integers(signature, known)
    if not sizes or not integers:
        return {}
    shapes = _shapes(signature, 1, max_length)
    lowest = {
        name: (
            np.full(shape, known[name][0], known[name].dtype)
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
            len(integers) + len(known) > 1
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


def as_list(samples: Any) -> Sequence[Any]:
    """Samples as a list of arrays, or of dicts of them."""
    if samples is None:
        return []
    return samples if isinstance(samples, list | tuple) else [samples]


def split_texts(samples: Any) -> tuple[list[str], list[Any]]:
    """The texts among samples, one by one, and the other samples."""
    texts: list[str] = []
    others = []
    for sample in as_list(samples):
        found = _as_texts(sample)
        if found is None:
            others.append(sample)
        else:
            texts.extend(found)
    return texts, others


def _as_texts(sample: Any) -> np.ndarray | None:
    """A sample as an array of texts, if it is nothing else."""
    if isinstance(sample, Mapping):
        if len(sample) != 1:
            return None
        (sample,) = sample.values()
    try:
        array = np.asarray(
            sample.numpy() if hasattr(sample, "numpy") else sample
        )
    except Exception:  # ragged, or of no array's kind
        return None
    if array.dtype.kind not in "OSU" or not array.size:
        return None
    texts = [
        text.decode(errors="replace") if isinstance(text, bytes) else text
        for text in array.ravel().tolist()
    ]
    if not all(isinstance(text, str) for text in texts):
        return None
    return np.array(texts, dtype=object)


def _own_samples(signature: Signature, samples: Any) -> list[Inputs]:
    """Those of the given samples that are inputs of this very signature."""
    origin = signature.origin
    if origin is not None and origin.signature.specs is signature.specs:
        return []  # they are the older one's
    return [
        inputs
        for sample in as_list(samples)
        if not isinstance(inputs := _fit(sample, signature), str)
    ]


def fitting_samples(signature: Signature, samples: Any) -> list[Inputs]:
    """Also those that are inputs of what the signature was made of."""
    fitting = _own_samples(signature, samples)
    if signature.origin is not None:
        fitting += map(
            signature.origin.widen,
            fitting_samples(signature.origin.signature, samples),
        )
    return fitting


def fit_samples(
    signatures: Sequence[Signature], samples: Any, argument: str = "samples"
) -> dict[str, list[Inputs]]:
    """Samples as inputs of each signature, by its name.

    Args:
        signatures: What they may be inputs of.
        samples: None, an array, a dict of arrays by input name, a text, or a
            list of these.
        argument: What messages call them.

    Raises:
        ValueError: A sample that fits none of the signatures.
    """
    fitted: dict[str, list[Inputs]] = {each.name: [] for each in signatures}
    for sample in as_list(samples):
        found = {
            signature.name: fitting_samples(signature, [sample])
            for signature in signatures
        }
        if not any(found.values()):
            raise ValueError(_fit(sample, signatures[0], argument))
        for name, inputs in found.items():
            fitted[name] += inputs
    return fitted


def _fit(
    sample: Any, signature: Signature, argument: str = "samples"
) -> Inputs | str:
    """A sample as inputs of a signature, or why it does not fit."""
    names = ", ".join(signature.specs)
    if signature.whole is not None:
        whole = _fit(sample, signature.whole.signature)
        if not isinstance(whole, str):
            sample = signature.whole.cut(whole)
    if not isinstance(sample, Mapping):
        if len(signature.specs) != 1:
            return (
                f"Signature '{signature.name}' has the inputs {names}: "
                f"`{argument}` must be dicts by these names"
            )
        sample = {next(iter(signature.specs)): sample}
    if set(sample) != set(signature.specs):
        return (
            f"`{argument}` must be dicts with the inputs {names}. Received: "
            f"{', '.join(map(str, sample))}"
        )
    inputs = {}
    for name, spec in signature.specs.items():
        try:
            array = _as_array(sample[name], spec.dtype)
        except (TypeError, ValueError) as error:
            return (
                f"`{argument}`: input '{name}' of signature '{signature.name}' "
                f"is of dtype {spec.dtype}: {error}"
            )
        if array.dtype == object and array.ndim == 0:
            array = array.reshape([1] * len(spec.shape))  # a text alone
        if array.ndim != len(spec.shape) or any(
            known not in (None, size)
            for known, size in zip(spec.shape, array.shape, strict=True)
        ):
            return (
                f"`{argument}`: input '{name}' of signature '{signature.name}' "
                f"has shape {tuple(spec.shape)}. Received: {array.shape}"
            )
        inputs[name] = array
    return inputs


def _as_array(value: Any, dtype: str) -> np.ndarray:
    if dtype == "string":
        value = value.numpy() if hasattr(value, "numpy") else value
        array = np.asarray(value, dtype=object)
        if not all(isinstance(text, str | bytes) for text in array.ravel()):
            raise ValueError("these are no strings")
        return array
    try:
        array = np.asarray(keras.ops.convert_to_numpy(value))
    except Exception as error:  # each kind of value has its own
        raise ValueError(f"these are {type(value).__name__}") from error
    if array.dtype.kind in "OSU":
        raise ValueError(f"these are {type(value).__name__}, and no numbers")
    if "int" in dtype:
        if not np.all(array == np.floor(array)):
            raise ValueError("these are no whole numbers")
        limits = np.iinfo(dtype)
        if array.size and not (
            limits.min <= np.min(array) and np.max(array) <= limits.max
        ):
            raise ValueError("some of these are beyond its range")
    return array.astype(dtype)
