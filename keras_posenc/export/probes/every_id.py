"""Test inputs in which each id of a table occurs: a file may have a wrong row.

Sequences are short, so that a mean over the tokens hides no row and attention
costs little.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

_LENGTH = 16
_TOKENS = 2**14  # in a batch
# Above one of these, no batch is made.
_MOST_IDS = 250_002  # of XLM-RoBERTa's tokenizer, among the largest
_MOST_BATCHES = 64
_MOST_WORK = 2**37  # weights, except tables, times tokens
_MOST_NUMBERS = 2**25  # of all outputs

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Batches of `rows` examples, of a length, for a number of ids."""

    rows: int
    batches: int


def every_id(
    signature: Signature,
    values: Mapping[str, np.ndarray],
    counts: Mapping[str, int | None],
    max_length: int,
    invent: Callable[[Mapping[str, tuple[int, ...]]], Arrays],
    takes: Callable[[Arrays], bool],
) -> Iterator[Arrays]:
    """Yields batches in which each value of each input occurs.

    Args:
        signature: The signature.
        values: All ids, or all words of a vocabulary, that an input takes, by
            its name.
        counts: Inputs of integers that go to no table: masks and counts.
        max_length: The longest sequence.
        invent: Makes inputs of these shapes by name.
        takes: Returns whether the model accepts some inputs.
    """
    for length in dict.fromkeys((min(_LENGTH, max_length), max_length)):
        plan = _plan(signature, {n: len(x) for n, x in values.items()}, length)
        if plan is None:
            return
        shapes = signature.shapes(plan.rows, length)

        def batch(index: int) -> Arrays:
            inputs = invent(shapes)  # noqa: B023 - called before the next length
            for name, value in inputs.items():
                if name in values:
                    start = index * value.size
                    chosen = np.arange(start, start + value.size)
                    found = values[name][chosen % len(values[name])]
                    inputs[name] = found.reshape(value.shape).astype(
                        value.dtype
                    )
                elif name in counts or "mask" in name or value.dtype == bool:
                    # Each token counts.
                    most = length if value.ndim == 1 else 1  # noqa: B023
                    inputs[name] = np.full_like(value, most)
            return inputs

        if takes(batch(0)):
            yield from map(batch, range(plan.batches))
            return


def _plan(
    signature: Signature, counts: Mapping[str, int], length: int
) -> _Plan | None:
    """Returns how to run so many ids of inputs; None if it is too much."""
    one = signature.shapes(1, length)
    cells = {name: max(math.prod(one[name][1:]), 1) for name in counts}
    examples = max((-(-counts[n] // cells[n]) for n in counts), default=0)
    if not examples or max(counts.values()) > _MOST_IDS:
        return None
    widest = max(cells.values())
    batches = -(-examples // max(_TOKENS // widest, 1))
    rows = -(-examples // batches)
    fixed = signature.shapes(rows, length)
    smallest = min(fixed[name][0] if fixed[name] else 1 for name in counts)
    batches = -(-examples // smallest)
    if (
        batches > _MOST_BATCHES
        or examples * widest * _multiplied(signature) > _MOST_WORK
        or examples * _numbers(signature, length) > _MOST_NUMBERS
    ):
        return None
    return _Plan(rows, batches)


def untried_ids(signature: Signature) -> int:
    """Returns how many ids a signature's largest table has, if too many.

    It is 0 if each is run, or the signature takes no ids.
    """
    while signature.oracle is not None:
        signature = signature.oracle.base
    most = max((each.input_dim for each in _tables(signature)), default=0)
    names = [
        name
        for name, spec in signature.specs.items()
        if "int" in spec.dtype and "mask" not in name
    ]
    if not most or not names:
        return 0
    if Offers.of(signature.model).own_probes is not None:
        return most
    is_tried = _plan(signature, dict.fromkeys(names, most), _LENGTH)
    return 0 if is_tried else most


def _tables(signature: Signature) -> list[keras.layers.Embedding]:
    return [
        layer
        for layer in layers_within(signature.model)
        if isinstance(layer, keras.layers.Embedding)
    ]


def _multiplied(signature: Signature) -> int:
    """Returns how many weights each token may be multiplied by."""
    tables = {id(x) for each in _tables(signature) for x in each.weights}
    return sum(
        math.prod(each.shape)
        for each in signature.model.weights
        if id(each) not in tables
    )


def _numbers(signature: Signature, length: int) -> int:
    """Returns how many numbers the outputs of an example have, at most."""
    outputs = keras.tree.flatten(
        getattr(signature.model, "outputs", None) or []
    )
    if outputs:
        return sum(
            math.prod(length if size is None else size for size in x.shape[1:])
            for x in outputs
        )
    # Unknown before a call. A table may be multiplied by, too.
    shapes = [each.shape for each in signature.model.weights]
    return length * max((max(each, default=1) for each in shapes), default=1)
