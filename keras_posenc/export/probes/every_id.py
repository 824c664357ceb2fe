"""Test inputs in which each id of a table occurs: a file may have a wrong row.

Sequences are short, so that a mean over the tokens hides no row and attention
costs little.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np

from keras_posenc.export.probes.extremes import Invent
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

_LENGTH = 16
_TOKENS = 2**14  # in a batch
# Above one of these, no batch is made.
_MOST_BATCHES = 64
_MOST_WORK = 2**37  # weights, except tables, times tokens
_MOST_NUMBERS = 2**25  # of all outputs


def every_id(
    signature: Signature,
    values: Mapping[str, np.ndarray],
    counts: Mapping[str, int | None],
    max_length: int,
    invent: Invent,
    takes: Callable[[Inputs], bool],
) -> Iterator[Inputs]:
    """Yields batches in which each of the values of each input occurs.

    `counts` also names inputs of integers that go to no table, as masks do.
    """
    counts_of = {name: len(each) for name, each in values.items()}
    for length in dict.fromkeys((min(_LENGTH, max_length), max_length)):
        rows, batches = _plan(signature, counts_of, length)
        if not batches:
            return
        inputs = invent(signature.shapes(rows, length))
        for name, value in inputs.items():
            if name not in values and (
                name in counts or "mask" in name or value.dtype == bool
            ):
                # Each token counts.
                inputs[name][...] = length if value.ndim == 1 else 1
        found = [_batch(inputs, values, index) for index in range(batches)]
        if takes(found[0]):
            yield from found
            return


def _batch(
    inputs: Inputs, values: Mapping[str, np.ndarray], index: int
) -> Inputs:
    found = dict(inputs)
    for name, each in values.items():
        value = found[name]
        places = index * value.size + np.arange(value.size)
        chosen = each[places % len(each)].astype(value.dtype)
        found[name] = chosen.reshape(value.shape)
    return found


def _plan(
    signature: Signature, counts: Mapping[str, int], length: int
) -> tuple[int, int]:
    """Returns how many examples a batch has, and how many batches to run."""
    one = signature.shapes(1, length)
    cells = {name: max(math.prod(one[name][1:]), 1) for name in counts}
    examples = max((-(-counts[n] // cells[n]) for n in counts), default=0)
    if not examples:
        return 1, 0
    widest = max(cells.values())
    rows = -(-examples // -(-examples // max(_TOKENS // widest, 1)))
    fixed = signature.shapes(rows, length)
    batches = -(-examples // min((*fixed[n], 1)[0] for n in counts))
    # Each token may be multiplied by all other weights.
    looked_up = {id(x) for each in tables(signature) for x in each.weights}
    weights = [x for x in signature.model.weights if id(x) not in looked_up]
    multiplied = sum(math.prod(x.shape) for x in weights)
    if (
        batches > _MOST_BATCHES
        or examples * widest * multiplied > _MOST_WORK
        or examples * _numbers(signature, length) > _MOST_NUMBERS
    ):
        return 1, 0
    return rows, batches


def tables(signature: Signature) -> list[keras.layers.Embedding]:
    """Returns the model's embeddings."""
    return [
        layer
        for layer in layers_within(signature.model)
        if isinstance(layer, keras.layers.Embedding)
    ]


def _numbers(signature: Signature, length: int) -> int:
    """Returns how many numbers the outputs of an example have, at most."""
    model = signature.model
    outputs = keras.tree.flatten(getattr(model, "outputs", None) or [])
    if outputs:
        shapes = [x.shape[1:] for x in outputs]
        return sum(math.prod(n or length for n in shape) for shape in shapes)
    # Unknown before a call. A table may be multiplied by, too.
    sizes = (size for each in model.weights for size in each.shape)
    return length * max(sizes, default=1)
