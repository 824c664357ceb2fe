"""SQNR, agreement and cosine of a quantized file's outputs with the model's."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]  # of the model, of the file

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


# How each number is written, and on which side of it its limit is.
_TEXTS = {
    "kl": ("KL divergence {:.2g} nats per token", "at most"),
    "perplexity": ("perplexity {:.4g} times the model's", "at most"),
    "sqnr": ("SQNR {:.1f} dB", "at least"),
    "agreement": ("agreement {:.4g}", "at least"),
    "cosine": ("least cosine {:.4f}", "at least"),
}


class Loss:
    """What a quantized file loses: numbers by the names of their limits."""

    @property
    def measured(self) -> dict[str, float]:
        """The numbers that are known."""
        raise NotImplementedError

    def exceeded(self, limits: Mapping[str, float]) -> list[str]:
        """Returns the names of the limits that are exceeded; NaN exceeds."""
        return [
            name
            for name, value in self.measured.items()
            if name in limits
            and not (
                value >= limits[name]
                if _TEXTS[name][1] == "at least"
                else value <= limits[name]
            )
        ]

    def text(self, limits: Mapping[str, float]) -> str:
        """Returns the numbers with their limits, if any."""
        return as_text(self.measured, limits)


def as_text(measured: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """Returns what was measured with its limits, if any."""
    parts = []
    for name, value in measured.items():
        text, side = _TEXTS[name]
        most = f" ({side} {limits[name]:.4g})" if name in limits else ""
        parts.append(text.format(value) + most)
    return ", ".join(parts) or "nothing to measure"


def largest_loss(losses: Iterable[Loss], limits: Mapping[str, float]) -> str:
    """Returns the worst KL divergence, perplexity or SQNR, as text."""
    every = [each.measured for each in losses]
    for name in ("kl", "perplexity", "sqnr"):
        if values := [each[name] for each in every if name in each]:
            worst = min(values) if name == "sqnr" else max(values)
            return as_text({name: worst}, limits)
    return "finite outputs"


@dataclasses.dataclass(frozen=True)
class Quality(Loss):
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
    def measured(self) -> dict[str, float]:
        """The numbers that are known."""
        names = "sqnr", "agreement", "cosine"
        found = {name: getattr(self, name) for name in names}
        return {name: x for name, x in found.items() if x is not None}


def quality_of(pairs: Pairs) -> Quality | None:
    """Returns how near an output is to the model's; None without any number.

    Integers are classes, except those that vectors are rounded to: int8, and
    bits packed into uint8. Floats are vectors, except probabilities.
    """
    dtype = pairs[0][0].dtype
    if dtype == "uint8":
        pairs = [
            (np.unpackbits(x), np.unpackbits(y.astype("uint8")))
            for x, y in pairs
        ]
    if dtype.kind in "biu" and dtype != "int8":
        return _equality(pairs)
    widths = {x.shape[-1] if x.ndim > 1 else 1 for x, _ in pairs}
    width = widths.pop() if len(widths) == 1 else 1  # a dynamic axis
    if not width or not any(x.size for x, _ in pairs):
        return None
    wanted, got = (
        np.concatenate([x.astype("float64").reshape(-1, width) for x in side])
        for side in zip(*pairs, strict=True)
    )
    are_classes = _add_up_to_1(wanted)
    # Masks give logits of padding, say, a number that would hide all others.
    sizes = np.abs(wanted)
    limit = max(_HIDDEN, _FAR * np.median(sizes[np.isfinite(sizes)]))
    is_shown = (sizes >= limit) & ~(np.abs(got) >= limit / 10)
    wanted, got = (np.where(sizes < limit, each, 0.0) for each in (wanted, got))
    got[is_shown] = np.nan
    sqnr = _decibels(wanted, got)
    if are_classes:
        own, other = wanted.argmax(axis=-1), got.argmax(axis=-1)
        # Of one class throughout the lead may be less than rounding.
        equal = float(np.mean(own == other)) if np.ptp(own) else None
        return Quality(len(wanted), sqnr, equal)
    cosine = _least_cosine(wanted, got) if width > 1 else None
    return Quality(len(wanted), sqnr, cosine=cosine)


def _add_up_to_1(rows: np.ndarray) -> bool:
    """Returns whether vectors are probabilities; those of zeros may be too."""
    rows = rows[np.isfinite(rows).all(axis=-1) & (rows != 0).any(axis=-1)]
    if not rows.size or rows.shape[-1] < 2:
        return False
    apart = np.abs(rows.sum(axis=-1) - 1)
    return bool(np.all(rows >= -_SLACK) and np.all(apart <= _SLACK))


def _equality(pairs: Pairs) -> Quality | None:
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


def _least_cosine(wanted: np.ndarray, got: np.ndarray) -> float:
    lengths = np.linalg.norm(wanted, axis=-1)
    kept = (lengths > _SHORTEST * lengths.max()) & (lengths > 0)
    products = lengths * np.linalg.norm(got, axis=-1)
    cosines = np.sum(wanted * got, axis=-1)[kept] / np.maximum(
        products[kept], np.finfo("float64").tiny
    )
    return float(np.min(cosines, initial=1.0))


def qualities(
    cases: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]],
) -> dict[str, Quality]:
    """Returns the quality of outputs but texts, by `signature/output`."""
    pairs: dict[str, list[Any]] = {}
    for signature, wanted, got in cases:
        for name, value in wanted.items():
            same = name in got and got[name].shape == value.shape
            if same and value.dtype != object:
                pair = value, got[name]
                pairs.setdefault(f"{signature}/{name}", []).append(pair)
    found = {name: quality_of(each) for name, each in pairs.items()}
    return {name: each for name, each in found.items() if each is not None}
