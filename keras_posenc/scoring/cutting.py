"""Splits the outputs for a batch into outputs for each row."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.scoring.schema import Output

Outputs = Mapping[str, np.ndarray]
# An axis of an output, without the batch.
Axis = tuple[str, int]
# How far float32 sums may change with their order, relative to the largest.
_ROUNDING = 1e-5


class Cutter:
    """Removes what padding adds to the outputs of rows.

    An axis that is dynamic in the signature may be as long as the padded input,
    or anything else. The two are told apart by running two rows of different
    lengths alone. An axis of the second kind cannot be cut from a batch.

    Args:
        outputs: The outputs of the signature.
        exported: The file's name in errors.
    """

    def __init__(self, outputs: Sequence[Output], exported: str) -> None:
        self._outputs, self._exported = outputs, exported
        self._open = {
            (each.name, axis) for each in outputs for axis in each.open_axes
        }
        self._following: set[Axis] | None = None
        self.is_alone = False  # whether each row must be run alone

    def cut(
        self,
        outputs: Outputs,
        lengths: Sequence[int] | None,
        padded: int,
        alone: Callable[[int], tuple[Outputs, int]],
    ) -> list[dict[str, np.ndarray]] | None:
        """Returns the outputs of each row; None if each must be run alone.

        Args:
            outputs: The outputs for a batch.
            lengths: The length of each row, if known.
            padded: Their length with padding.
            alone: Runs a row alone; returns its outputs and its length then.
        """
        self._check(outputs)
        count = len(next(iter(outputs.values())))
        rows = [
            {name: value[index] for name, value in outputs.items()}
            for index in range(count)
        ]
        if count == 1 or not self._open or {*(lengths or [])} == {padded}:
            return rows
        if lengths is None:
            self.is_alone = True
            return None
        if self._following is None:
            self._compare(lengths, alone)
        if self._following != self._open:
            return None
        for name, axis in self._open:
            for row, length in zip(rows, lengths, strict=True):
                row[name] = row[name].take(range(length), axis)
        return rows

    def are_alike(self, alone: Outputs, batched: Outputs) -> bool:
        """Returns whether a row has the same outputs alone and in a batch."""
        return all(
            _is_close(alone[each.name], batched[each.name], each.open_axes)
            for each in self._outputs
        )

    def _compare(
        self,
        lengths: Sequence[int],
        alone: Callable[[int], tuple[Outputs, int]],
    ) -> None:
        """Finds the axes that follow the length, from two rows of a batch."""
        ends = int(np.argmin(lengths)), int(np.argmax(lengths))
        (first, short), (second, long) = map(alone, ends)
        if short == long:
            return
        self._following = {
            (name, axis)
            for name, axis in self._open
            if (first[name].shape[axis + 1], second[name].shape[axis + 1])
            == (short, long)
        }
        self.is_alone = self._following != self._open

    def _check(self, outputs: Outputs) -> None:
        """Raises `ExportError` if outputs are not as the signature says."""
        for each in self._outputs:
            shape = outputs[each.name].shape
            if not each.fits(shape[1:]):
                raise ExportError(
                    f"Output '{each.name}' of '{self._exported}' is of shape "
                    f"{shape}, and its signature says (None, "
                    f"{', '.join(map(str, each.sizes))})"
                )


def _is_close(
    alone: np.ndarray, batched: np.ndarray, open_axes: Sequence[int]
) -> bool:
    """Returns whether a row's numbers are equal except for rounding."""
    first = batched[:1]
    for axis in open_axes:  # where padding may have added something
        most = min(first.shape[axis + 1], alone.shape[axis + 1])
        first = first.take(range(most), axis + 1)
    if first.shape != alone.shape:
        return False
    if alone.dtype.kind != "f":
        return np.array_equal(alone, first)
    finite = batched[np.isfinite(batched)]
    scale = float(np.abs(finite).max(initial=0))
    return np.allclose(
        alone, first, rtol=0, atol=_ROUNDING * scale, equal_nan=True
    )
