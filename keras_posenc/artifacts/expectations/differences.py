"""How far two answers are apart."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from keras_posenc.artifacts.expectations.kinds import (
    LOGITS,
    SCORES,
    VECTORS,
    Kind,
    losses,
)


@dataclasses.dataclass(frozen=True)
class Loss:
    """What rows of one kind have lost: see `kinds.losses`.

    Attributes:
        most: The row that has lost most.
        total: All of them together.
        rows: How many there are.
    """

    most: float = 0.0
    total: float = 0.0
    rows: int = 0

    @classmethod
    def of(cls, found: np.ndarray) -> Self:
        """That of some rows."""
        return cls(
            float(np.max(found, initial=0.0)), float(np.sum(found)), found.size
        )

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(
            max(self.most, other.most),
            self.total + other.total,
            self.rows + other.rows,
        )


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far some answers are from those wanted.

    Attributes:
        worst: The largest difference, relative as for `verify`; infinite where
            shapes differ.
        where: Where it is: the output's name and index.
        example: The first number of that index.
        mean: The mean of the differences of all numbers.
        agreeing: How many rows have their largest entry at the wanted place,
        rows: of how many rows of more than one entry.
        kept: The same of those rows alone in which the wanted entry leads the
        decided: others by more than the lead that was asked for.
        lost: By kind, of logits and vectors: what their rows have lost.
    """

    worst: float = 0.0
    where: str = ""
    mean: float = 0.0
    agreeing: int = 0
    rows: int = 0
    kept: int = 0
    decided: int = 0
    example: int | None = None
    lost: dict[str, Loss] = dataclasses.field(default_factory=dict)


def difference(
    wanted: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    scales: Mapping[str, float],
    rounded: bool = False,
    lead: float = 0.0,
    kinds: Mapping[str, Kind] | None = None,
) -> Difference:
    """Compares answers by the names of their outputs.

    Args:
        wanted: The answers as they should be.
        got: Others, under the same names.
        scales: The size of each output's numbers.
        rounded: Whether integers may differ, as an arg-max does where two
            scores are all but equal: what counts is the share that does.
        lead: By how much the largest entry of a row must lead the others for
            the row to be decided, relative as differences are.
        kinds: What the outputs are that have a kind.
    """
    worst, where = 0.0, ""
    example: int | None = None
    total, numbers = 0.0, 0
    agreeing, rows, kept, decided = 0, 0, 0, 0
    lost: dict[str, Loss] = {}
    for name, right in wanted.items():
        found = got[name]
        distances = _distances(right, found, scales[name])
        if rounded and distances is not None and not _is_float(right):
            distances = np.full_like(distances, np.mean(distances > 0))
        if distances is None:
            return Difference(math.inf, name)
        if distances.size == 0:
            continue
        index = np.unravel_index(np.argmax(distances), distances.shape)
        if distances[index] > worst or not where:
            worst = float(distances[index])
            where = f"{name}{[int(i) for i in index]}"
            example = int(index[0]) if index else None
        if not _is_float(right):
            continue
        total += float(np.sum(distances))
        numbers += distances.size
        kind = kinds[name].name if kinds and name in kinds else None
        if kind in (LOGITS, VECTORS):
            loss = Loss.of(losses(kind, right, found))
            lost[kind] = lost.get(kind, Loss()) + loss
        if kind in (SCORES, LOGITS):
            same = np.argmax(right, axis=-1) == np.argmax(found, axis=-1)
            agreeing += int(np.sum(same))
            rows += same.size
            is_decided = _leads(right, scales[name]) > lead
            kept += int(np.sum(same & is_decided))
            decided += int(np.sum(is_decided))
    mean = total / max(numbers, 1)
    return Difference(
        worst, where, mean, agreeing, rows, kept, decided, example, lost
    )


class Columns:
    """What of each output's columns no tolerance of the whole output shows.

    A column is what has one index along the last axis. Beside one of 1, one of
    1e-6 may be anything: its sign passes for rounding.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[np.ndarray]] = {}
        self._scales: dict[str, float] = {}

    def add(
        self, name: str, wanted: np.ndarray, got: np.ndarray, scale: float
    ) -> None:
        """Takes up one more answer to an output of that name and scale."""
        self._scales[name] = scale
        if not _is_float(wanted) or wanted.ndim < 2 or not wanted.size:
            return
        rows = [
            values.astype("float64").reshape(-1, wanted.shape[-1])
            for values in (wanted, got)
        ]
        with np.errstate(invalid="ignore"):  # an infinity less itself
            found = [np.abs(rows[0]), np.abs(rows[0] - rows[1])]
        self._found.setdefault(name, []).append(
            np.array([np.max(values, axis=0) for values in found])
        )

    def unseen(self, tolerance: float) -> dict[str, list[int]]:
        """By output, the columns of which not two digits were shown.

        Those that pass, although they differ by more than a hundredth of their
        own largest number: beside the others it is small enough.
        """
        unseen = {}
        for name, found in self._found.items():
            if len({columns.shape for columns in found}) > 1:
                continue  # along an axis of any length there are no columns
            sizes, differences = np.max(found, axis=0)
            passing = differences <= tolerance * self._scales[name]
            small = np.flatnonzero(passing & (differences > 0.01 * sizes))
            if small.size:
                unseen[name] = small.tolist()
        return unseen


def _leads(values: np.ndarray, scale: float) -> np.ndarray:
    """By how much the largest of each row leads the second."""
    second, first = np.moveaxis(
        np.sort(values.astype("float64"), axis=-1)[..., -2:], -1, 0
    )
    with np.errstate(invalid="ignore"):  # an infinity less itself
        return (first - second) / np.maximum(scale, np.abs(first))


def _is_float(values: Any) -> bool:
    return "float" in values.dtype.name


def _distances(
    wanted: np.ndarray, got: np.ndarray, scale: float
) -> np.ndarray | None:
    """Differences of two arrays, entry by entry; None for two shapes."""
    if wanted.shape != got.shape:
        return None
    if not _is_float(wanted):
        return np.where(wanted == got, 0.0, np.inf)
    wanted, got = wanted.astype("float64"), got.astype("float64")
    with np.errstate(invalid="ignore"):
        distances = np.abs(wanted - got) / np.maximum(scale, np.abs(wanted))
    same = (wanted == got) | (np.isnan(wanted) & np.isnan(got))
    distances = np.where(same, 0.0, distances)
    # One NaN beside a number, or infinities that differ.
    return np.where(np.isnan(distances), np.inf, distances)
