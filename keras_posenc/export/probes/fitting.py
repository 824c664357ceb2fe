"""Test inputs that are as long, or as short, as a model takes."""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_posenc.export.probes.compare import has_nan
from keras_posenc.export.probes.generate import (
    LONGEST,
    make_probes,
    side_of,
)
from keras_posenc.export.probes.graphs import Call, Graphs
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import layers_within

Takes = Callable[[int], bool]


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
    """Returns the smallest and the largest size of test inputs.

    It is the size of each dynamic axis except the batch.
    """
    if _is_fixed(signature):
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


def advice(
    signature: Signature, longest: int, graphs: Graphs, call: Call
) -> str:
    """Returns what to do if a model refuses a test input, as text."""
    if not _is_fixed(signature):
        takes = _taking(signature, longest, graphs, call)
        taken = _largest_taken(signature, longest, LONGEST, graphs, takes)
        if taken not in (None, longest):
            return (
                f"The test input has {longest} steps, and the model takes "
                f"{taken}: give `max_length={taken}` (--max-length {taken})"
            )
    return (
        "These inputs were generated. If the model takes only some values, "
        "give real inputs as `samples` (--samples)"
    )


def _is_fixed(signature: Signature) -> bool:
    specs = signature.innermost.specs.values()
    return all(None not in spec.shape[1:] for spec in specs)


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
    """Returns a size, or another one near it that the model takes, or None.

    Of images smaller than a model needs it is twice the first double that it
    takes, of which more than one pixel is left; of whole patches, of 14 pixels
    say, the first smaller one.
    """
    if takes(size):
        return size
    if signature.innermost.grid_axes:
        taken = next(filter(takes, _doubles(2 * size, most)), None)
        if taken is not None:
            return min(2 * taken, most)
        return next(filter(takes, range(size - 1, size // 2, -1)), None)
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
    """Returns a function that tells whether a model takes inputs of a size.

    If its graphs show that, the model is not run. Tensors without numbers, as
    of images that are smaller than what is cut off, show that a size is too
    small, unless the largest size has them too.
    """
    base = signature.innermost

    @functools.cache
    def empty(size: int) -> float:
        try:
            return graphs.empty_tensors(base.shapes(1, size))
        except ValueError:
            return math.inf

    # `CenterCrop` enlarges smaller images, but not in a graph of any size.
    crops = [
        max(layer.height, layer.width)
        for layer in layers_within(signature.model)
        if isinstance(layer, keras.layers.CenterCrop)
    ]
    least = max(crops, default=1)

    def fits(size: int) -> bool:
        if size < least <= most:
            return False
        found = empty(size)
        return math.isfinite(found) and (not found or found <= empty(most))

    @functools.cache
    def runs(size: int) -> bool:
        takes = functools.partial(accepts, call)
        try:
            probes = make_probes(signature, [], size, takes)
            first = next(each for each in probes if each.is_required)
        except (StopIteration, ValueError):
            return True  # only samples can be its inputs
        return accepts(lambda inputs: run_texts(inputs, call), first.inputs)

    return fits if graphs.has_sizes else runs


def run_texts(inputs: Inputs, call: Call) -> tuple[Inputs, dict[str, Any]]:
    """Runs a model on inputs; invented texts are cut to what it takes.

    Only the model's layers know how many tokens a text has, and how many of
    them have positions. A graph gives NaN for those beyond. Returns the inputs
    that it takes, and its outputs; raises `ValueError` if it refuses empty
    texts too.
    """
    refusal, first = None, None
    for tried in _shortened(inputs):
        try:
            outputs = call(tried)
        except ValueError as error:
            refusal = refusal or error
        else:
            first = first or (tried, outputs)
            if not has_nan(outputs):
                return tried, outputs
    if first is None:
        assert refusal is not None
        raise refusal
    return first


def _shortened(inputs: Inputs) -> Iterator[Inputs]:
    """Yields inputs with texts half as long each time, until they are empty."""
    yield inputs
    texts = {n: value for n, value in inputs.items() if value.dtype == object}
    longest = max(
        (len(x) for each in texts.values() for x in each.flat), default=0
    )
    while longest:
        longest //= 2
        cut = np.frompyfunc(operator.itemgetter(slice(longest)), 1, 1)
        yield {**inputs, **{n: cut(value) for n, value in texts.items()}}
