"""The answers to a batch as those to each of its rows."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.scoring.schema import Output

Answer = Mapping[str, np.ndarray]
# An output, and an axis of its rows.
Axis = tuple[str, int]
# How far sums of float32 may move with their order, by the largest number.
_ROUNDING = 1e-5


class Cutter:
    """Takes what padding adds off the answers to rows.

    An axis that the signature leaves open may be as long as the padded input,
    or anything else. Which, is seen where two rows of different lengths are
    answered alone; what is anything else cannot be cut out of a batch.

    Args:
        outputs: Those of the signature.
        artifact: What errors call the file.
    """

    def __init__(self, outputs: Sequence[Output], artifact: str) -> None:
        self._outputs, self._artifact = outputs, artifact
        self._open = {
            (each.name, axis) for each in outputs for axis in each.open_axes
        }
        self._following: set[Axis] | None = None
        self.is_alone = False  # whether each row must be asked alone

    def cut(
        self,
        answers: Answer,
        lengths: Sequence[int] | None,
        padded: int,
        alone: Callable[[int], tuple[Answer, int]],
    ) -> list[dict[str, np.ndarray]] | None:
        """The answer to each row; None if each must be asked alone.

        Args:
            answers: Those to a batch.
            lengths: How long each row is, if that is known.
            padded: How long they were made.
            alone: Asks a row alone, and says how long it is then.
        """
        self._check(answers)
        count = len(next(iter(answers.values())))
        rows = [
            {name: value[index] for name, value in answers.items()}
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

    def are_alike(self, alone: Answer, beside: Answer) -> bool:
        """Whether a row is answered alone as it is, first, beside another."""
        return all(
            _is_close(alone[each.name], beside[each.name], each.open_axes)
            for each in self._outputs
        )

    def _compare(
        self,
        lengths: Sequence[int],
        alone: Callable[[int], tuple[Answer, int]],
    ) -> None:
        """Sees which axes follow the length, by two rows of a batch."""
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

    def _check(self, answers: Answer) -> None:
        """Raises `ExportError` where a signature is not kept to."""
        for each in self._outputs:
            shape = answers[each.name].shape
            if not each.fits(shape[1:]):
                raise ExportError(
                    f"Output '{each.name}' of '{self._artifact}' is of shape "
                    f"{shape}, and its signature says (None, "
                    f"{', '.join(map(str, each.sizes))})"
                )


def _is_close(
    alone: np.ndarray, beside: np.ndarray, open_axes: Sequence[int]
) -> bool:
    """Whether a row's numbers are the same, but for how they are rounded."""
    first = beside[:1]
    for axis in open_axes:  # of which padding may have added some
        most = min(first.shape[axis + 1], alone.shape[axis + 1])
        first = first.take(range(most), axis + 1)
    if first.shape != alone.shape:
        return False
    if alone.dtype.kind != "f":
        return np.array_equal(alone, first)
    finite = beside[np.isfinite(beside)]
    scale = float(np.abs(finite).max(initial=0))
    return np.allclose(
        alone, first, rtol=0, atol=_ROUNDING * scale, equal_nan=True
    )
