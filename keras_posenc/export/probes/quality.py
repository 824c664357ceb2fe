"""SQNR, agreement and cosine of a quantized file's outputs with the model's.

SQNR says how large the error is next to how much outputs vary between inputs:
20 dB are an error of a tenth of that. Agreement is the share of equal classes,
and the cosine compares directions, as a search by vectors does.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_posenc.export import units

CLASSES, VECTORS, INTEGERS, BITS = "classes", "vectors", "integers", "bits"

# Outputs that vary by less than 0.3 of their size hide what is wrong with
# a file, but also show how each number is rounded: variation counts as no less.
_LEAST_VARIATION = 0.3
_SMALLEST = 1e-4  # size of numbers that are as good as 0
_MOST_DB = 200.0
# Shorter vectors than this share of the longest one are left out: rounding
# alone may turn them.
_SHORTEST = 0.05
# What masks add has at least this size, and this multiple of other numbers'.
_HIDDEN, _FAR = 1e8, 1e4
_SLACK = 1e-2  # rounding of probabilities, and of their sum, in float16


@dataclasses.dataclass(frozen=True)
class Quality:
    """How near one output of a quantized file is to the model's.

    Attributes:
        rows: Number of vectors, or of classes, that were compared.
        sqnr: Signal to quantization noise in dB: `10 log10(sum (y - mean)**2 /
            sum (y - file)**2)`. None for integers.
        agreement: Share of classes that are equal; of integers beyond those
            that a file would have that always gives the commonest one. None for
            other outputs, and if the model gives one class for all inputs.
        cosine: Least cosine of a vector with the model's. None for classes.
    """

    rows: int
    sqnr: float | None = None
    agreement: float | None = None
    cosine: float | None = None

    @property
    def measured(self) -> list[tuple[str, float]]:
        """The numbers that have a limit, with its name."""
        values = self.sqnr, self.agreement, self.cosine
        found = zip(("sqnr", "agreement", "cosine"), values, strict=True)
        return [(name, value) for name, value in found if value is not None]

    def exceeded(self, limits: Mapping[str, float]) -> list[str]:
        """Returns the names of the numbers that are below their limits."""
        return [
            name
            for name, value in self.measured
            if name in limits and not value >= limits[name]  # NaN is below
        ]

    def text(self, limits: Mapping[str, float]) -> str:
        """Returns the numbers with their limits, if any."""

        def least(name: str, times: int = 1, unit: str = "") -> str:
            if name not in limits:
                return ""
            return f" (at least {times * limits[name]:.4g}{unit})"

        parts = []
        if self.sqnr is not None:
            parts.append(f"SQNR {self.sqnr:.1f} dB{least('sqnr')}")
        if self.agreement is not None:
            what = "classes equal"
            if self.sqnr is None:
                what = "integers equal, beyond those of a constant file"
            parts.append(
                f"{100 * self.agreement:.4g}% of {self.rows:,} {what}"
                f"{least('agreement', 100, '%')}"
            )
        if self.cosine is not None:
            parts.append(
                f"least cosine {self.cosine:.4f} of "
                f"{units.count(self.rows, 'vector')}{least('cosine')}"
            )
        return ", ".join(parts)


def add_up_to_1(values: Sequence[np.ndarray]) -> bool:
    """Returns whether vectors are probabilities; those of zeros may be too."""
    if any(value.ndim < 2 or value.shape[-1] < 2 for value in values):
        return False
    for value in values:
        rows = value.astype("float64")
        rows = rows[np.isfinite(rows).all(axis=-1) & (rows != 0).any(axis=-1)]
        if np.any(rows < -_SLACK) or np.any(np.abs(rows.sum(-1) - 1) > _SLACK):
            return False
    return any(value.size for value in values)


def quality_of(
    kind: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Quality | None:
    """Returns how near an output is to the model's; None without any number."""
    if kind == BITS:
        pairs = [(np.unpackbits(x), np.unpackbits(y)) for x, y in pairs]
    if kind in (BITS, INTEGERS):
        return _equality(pairs)
    widths = {x.shape[-1] if x.ndim > 1 else 1 for x, _ in pairs}
    width = widths.pop() if len(widths) == 1 else 1  # a dynamic axis
    if not width:
        return None
    wanted, got = (
        np.concatenate([x.astype("float64").reshape(-1, width) for x in side])
        for side in zip(*pairs, strict=True)
    )
    if not wanted.size:
        return None
    # Masks give logits of padding, say, a number that would hide all others.
    sizes = np.abs(wanted)
    usual = np.median(sizes[np.isfinite(sizes)]) if sizes.size else 0.0
    limit = np.nanmax([_HIDDEN, _FAR * usual])
    is_shown = (sizes >= limit) & ~(np.abs(got) >= limit / 10)
    is_number = sizes < limit
    wanted, got = (np.where(is_number, each, 0.0) for each in (wanted, got))
    got[is_shown] = np.nan
    sqnr = _decibels(wanted, got)
    if kind == CLASSES:
        return Quality(len(wanted), sqnr, _agreement(wanted, got))
    cosine = _least_cosine(wanted, got) if width > 1 else None
    return Quality(len(wanted), sqnr, cosine=cosine)


def _equality(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Quality | None:
    """Returns the share of equal integers, beyond that of a constant file."""
    wanted, got = (
        np.concatenate([np.ravel(each) for each in side])
        for side in zip(*pairs, strict=True)
    )
    if not wanted.size:
        return None
    same = float(np.mean(wanted == got))
    usual = np.unique(wanted, return_counts=True)[1].max() / wanted.size
    if usual < 1:
        same = max((same - usual) / (1 - usual), 0.0)
    return Quality(wanted.size, agreement=same)


def _decibels(wanted: np.ndarray, got: np.ndarray) -> float:
    """Returns the SQNR."""
    signal = max(
        np.sum((wanted - wanted.mean(axis=0)) ** 2),
        _LEAST_VARIATION**2 * np.sum(wanted**2),
        _SMALLEST**2 * wanted.size,
    )
    noise = np.sum((wanted - got) ** 2)
    if not np.isfinite(noise):
        return -math.inf
    if noise <= signal * 10 ** (-_MOST_DB / 10):
        return _MOST_DB
    return 10 * math.log10(signal / noise)


def _agreement(wanted: np.ndarray, got: np.ndarray) -> float | None:
    """Returns the share of equal classes.

    That is the largest score, or, if several can apply at once, whether each
    one does.
    """
    own, other = wanted > 0.5, got > 0.5
    if wanted.shape[-1] > 1 and add_up_to_1([wanted]):
        own, other = wanted.argmax(axis=-1), got.argmax(axis=-1)
    if np.all(own == own[:1]):  # one class whose lead may be less than rounding
        return None
    return float(np.mean(own == other))


def _least_cosine(wanted: np.ndarray, got: np.ndarray) -> float:
    lengths = np.linalg.norm(wanted, axis=-1)
    kept = (lengths > _SHORTEST * lengths.max()) & (lengths > 0)
    products = lengths * np.linalg.norm(got, axis=-1)
    cosines = np.sum(wanted * got, axis=-1)[kept] / np.maximum(
        products[kept], np.finfo("float64").tiny
    )
    return float(np.min(cosines, initial=1.0))


def qualities(
    kinds: Mapping[str, Mapping[str, str]],
    cases: Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]],
) -> dict[str, Quality]:
    """Returns the quality of each output, by `signature/output`."""
    pairs: dict[tuple[str, str], list[Any]] = {}
    for signature, wanted, got in cases:
        for name in kinds.get(signature, {}):
            if name in got and got[name].shape == wanted[name].shape:
                pair = wanted[name], got[name]
                pairs.setdefault((signature, name), []).append(pair)
    found = {
        f"{signature}/{name}": quality_of(kinds[signature][name], each)
        for (signature, name), each in pairs.items()
    }
    return {name: each for name, each in found.items() if each is not None}
