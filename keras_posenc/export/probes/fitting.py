"""Test inputs that are as long, or as short, as a model takes."""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from keras_posenc.export.probes.compare import has_nan
from keras_posenc.export.probes.generate import make_probes, side_of
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.signature import Signature

Takes = Callable[[int], bool]

_SHORT = 8  # characters of a text that fits


def accepts(call: Callable[[Inputs], Any], inputs: Inputs) -> bool:
    """Returns whether a model takes some inputs."""
    try:
        call(inputs)
    except ValueError:
        return False
    return True


def sizes_of(
    signature: Signature, most: int, is_given: bool, graphs: Graphs, call: Call
) -> tuple[int, int]:
    """Returns the least and the largest size of axes other than the batch."""
    specs = signature.innermost.specs.values()
    if all(None not in spec.shape[1:] for spec in specs):
        return 1, most
    takes = _taking(signature, most, graphs, call)
    longest = most
    if not is_given:
        side = side_of(signature, most)
        longest = _largest_taken(signature, side, most, graphs, takes) or side
    if not graphs.has_sizes or takes(1) or not takes(longest):
        return 1, longest
    larger = next(filter(takes, _doubles(2, longest)), longest)
    return _edge(takes, larger, larger // 2), longest


def _doubles(size: int, most: int) -> Iterator[int]:
    return itertools.takewhile(
        lambda each: each <= most, (size << k for k in itertools.count())
    )


def _edge(takes: Takes, taken: int, refused: int) -> int:
    """Returns the size that is taken next to one that is refused."""
    while abs(taken - refused) > 1:
        middle = (taken + refused) // 2
        if takes(middle):
            taken = middle
        else:
            refused = middle
    return taken


def _largest_taken(
    signature: Signature, size: int, most: int, graphs: Graphs, takes: Takes
) -> int | None:
    """Returns a size, or another one near it that the model takes, or None."""
    if takes(size):
        return size
    if signature.innermost.grid_axes:
        # Some take only whole patches of 14 pixels.
        sizes = *_doubles(2 * size, most), *range(size - 1, size // 2, -1)
        return next(filter(takes, sizes), None)
    halves = (size >> k for k in range(1, size.bit_length()))
    taken = next(filter(takes, halves), None)
    if taken is not None:
        return _edge(takes, taken, min(2 * taken + 1, size))
    # Sounds are longer than any text. Only graphs tell that without a run.
    longer = _doubles(2 * size, 2**16) if graphs.has_sizes else ()
    return next(filter(takes, longer), None)


def _taking(
    signature: Signature, most: int, graphs: Graphs, call: Call
) -> Takes:
    """Returns what tells whether a model takes a size, by its graphs or a run.

    Tensors without numbers show that a size is too small, unless the largest
    size has them too.
    """
    base = signature.innermost

    @functools.cache
    def empty(size: int) -> float:
        try:
            return graphs.empty_tensors(base.shapes(1, size))
        except ValueError:
            return math.inf

    def fits(size: int) -> bool:
        found = empty(size)
        return math.isfinite(found) and (not found or found <= empty(most))

    @functools.cache
    def runs(size: int) -> bool:
        takes = functools.partial(accepts, call)
        try:
            probes = make_probes(signature, [], size, takes, 1, graphs)
            first = next(each for each in probes if each.is_required)
        except (StopIteration, ValueError):
            return True  # only samples can be its inputs
        return accepts(lambda inputs: run_texts(inputs, call), first.inputs)

    return fits if graphs.has_sizes else runs


def run_texts(inputs: Inputs, call: Call) -> tuple[Inputs, dict[str, Any]]:
    """Runs a model; invented texts are cut if they are too long for it.

    A graph gives NaN for tokens beyond its positions. Returns the inputs, too.
    """
    cut = np.frompyfunc(operator.itemgetter(slice(_SHORT)), 1, 1)
    short = {n: cut(x) if x.dtype == object else x for n, x in inputs.items()}
    has_texts = any(x.dtype == object for x in inputs.values())
    try:
        outputs = call(inputs)
    except ValueError:
        if not has_texts:
            raise
        return short, call(short)
    if has_texts and has_nan(outputs):
        return short, call(short)
    return inputs, outputs
