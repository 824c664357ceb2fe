"""The answers to a batch as those to each of its rows."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from keras_posenc.artifacts.ground.errors import ExportError
from keras_posenc.scoring.schema import Output

Answer = Mapping[str, np.ndarray]
# An output, and an axis of its rows.
Axis = tuple[str, int]


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

    def are_alike(
        self, answers: Answer, padded: Answer, more: int, tolerance: float
    ) -> bool:
        """Whether a row is answered the same with `more` padding behind it."""
        for name, value in answers.items():
            other = padded[name]
            for axis, size in enumerate(value.shape):
                if other.shape[axis] == size + more:
                    other = other.take(range(size), axis)
            if other.shape != value.shape:
                return False
            if value.dtype.kind != "f":
                if not np.array_equal(value, other):
                    return False
            elif not np.allclose(
                value, other, rtol=tolerance, atol=tolerance, equal_nan=True
            ):
                return False
        return True

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
