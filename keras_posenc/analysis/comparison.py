"""Every kind of position by name, and a table of all, measured alike."""

#: Makes each kind of position for sequences of a length. Learned ones have
#: their random initial weights.
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_posenc.analysis.properties import Properties, properties
from keras_posenc.checks import check_choice, check_integer, check_positive_int
from keras_posenc.positional.biases import (
    AlibiBias,
    FireBias,
    KerpleBias,
    RelativePositionBias,
    RelativePositionEmbedding,
    TransformerXLBias,
)
from keras_posenc.positional.position_embedding import PositionEmbedding
from keras_posenc.positional.positional_encoding import (
    IndexEncoding,
    PositionalEncoding,
)
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.positional.time_encoding import TimeEncoding
from keras_posenc.progress import progress

SCHEMES: dict[str, Callable[[int], keras.Layer]] = {
    "sinusoidal": lambda length: PositionalEncoding(),
    "index": lambda length: IndexEncoding(),
    "index-normalized": lambda length: IndexEncoding(normalize=True),
    "learned": lambda length: PositionEmbedding(length),
    "time": lambda length: TimeEncoding(),
    "rotary": lambda length: RotaryEmbedding(),
    "alibi": lambda length: AlibiBias(),
    "t5": lambda length: RelativePositionBias(),
    "shaw": lambda length: RelativePositionEmbedding(max_distance=16),
    "transformer-xl": lambda length: TransformerXLBias(),
    "kerple": lambda length: KerpleBias(),
    "fire": lambda length: FireBias(),
}


def make_scheme(name: str, length: int) -> keras.Layer:
    """Returns a layer of a kind of position.

    Args:
        name: One of `SCHEMES`.
        length: The longest sequence, for kinds that need to know.

    Raises:
        ValueError: An unknown name.

    Example:
    >>> from keras_posenc.analysis import make_scheme
    >>> type(make_scheme("rotary", 128)).__name__
    'RotaryEmbedding'
    """
    return SCHEMES[check_choice("scheme", name, tuple(SCHEMES))](length)


_WIDTH = 80


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The properties of each kind of position, for the same positions.

    `str` gives a table of at most 80 columns, with two digits or more.

    Attributes:
        length: How many positions.
        dim: Width of the encodings, and of a head.
        schemes: `Properties` by the name of the kind.
    """

    length: int
    dim: int
    schemes: Mapping[str, Properties]

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers by kind of position, ready for JSON."""
        return {name: found.to_dict() for name, found in self.schemes.items()}

    def __str__(self) -> str:
        names = ["scheme", "", *self.schemes]
        columns = [
            [*_two_lines(field.name), *map(_number, values)]
            for field in dataclasses.fields(Properties)
            if field.name != "similarity"
            for values in [
                [getattr(found, field.name) for found in self.schemes.values()]
            ]
        ]
        # A table that is too wide is split: digits are never cut.
        for tables in range(1, len(columns) + 1):
            size = math.ceil(len(columns) / tables)
            texts = [
                _table(names, columns[begin : begin + size])
                for begin in range(0, len(columns), size)
            ]
            if all(len(row) <= _WIDTH for text in texts for row in text):
                break
        return "\n\n".join("\n".join(text) for text in texts)


def compare(
    length: int = 128, dim: int = 64, *, verbose: int = True
) -> Comparison:
    """Measures every kind of position against the conditions of a good one.

    Learned positions are measured with their random initial weights: seed
    Keras to get the same numbers again.

    Args:
        length: How many positions; at least 2.
        dim: Width of the encodings, and of a head.
        verbose: Whether to show progress.

    Returns:
        A `Comparison`: print it, or call its `to_dict()`.

    Raises:
        ValueError: A length or a width that some kind of position cannot have.

    Example:
    >>> from keras_posenc import analysis
    >>> found = analysis.compare(length=9, dim=4, verbose=False)
    >>> round(found.schemes["sinusoidal"].norm, 4)
    1.4142
    """
    if check_integer("length", length) < 2:
        raise ValueError(f"`length` must be above 1. Received: length={length}")
    if check_positive_int("dim", dim) % 2:
        raise ValueError(
            "`dim` must be even: rotary positions turn features in pairs. "
            f"Received: dim={dim}"
        )
    found = {}
    with progress(verbose) as step:
        for name in SCHEMES:
            step(f"Measuring {name}")
            found[name] = properties(make_scheme(name, length), length, dim)
    return Comparison(length, dim, found)


def _two_lines(name: str) -> tuple[str, str]:
    first, _, second = name.partition("_")
    return first, second


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if 100 <= value < 1e5 else f"{value:.2g}"


def _table(names: list[str], columns: list[list[str]]) -> list[str]:
    """Returns the lines of a table: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in columns]
    left = max(map(len, names))
    return [
        " ".join(
            [
                name.ljust(left),
                *(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)),
            ]
        ).rstrip()
        for name, *cells in zip(names, *columns, strict=True)
    ]
