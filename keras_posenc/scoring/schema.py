"""The outputs of a signature as columns."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.inspect import Tensor
from keras_posenc.scoring.arrow import require_pyarrow

_MOST = 2**31 - 1  # Arrow's lists have offsets of 32 bits


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a signature.

    Attributes:
        name: The name of the output and of its column.
        sizes: Its shape without the batch; None for a size that is dynamic in
            the signature.
        dtype: The name of its dtype.
    """

    name: str
    sizes: tuple[int | None, ...]
    dtype: str

    @classmethod
    def of(cls, name: str, tensor: Tensor, batch: int | None) -> "Output":
        """Returns an output; raises `ValueError` if it does not have rows."""
        if not tensor.shape or tensor.shape[0] not in (None, batch):
            raise ValueError(
                f"output '{name}', {tensor}, does not have one entry for a row"
            )
        return cls(name, tensor.shape[1:], tensor.dtype)

    @property
    def is_text(self) -> bool:
        """Whether it is strings."""
        return self.dtype in ("string", "object")

    @property
    def type(self) -> Any:
        """The type of its column: a number, a string, or lists of these."""
        pa = require_pyarrow()
        name = self.dtype
        if name in ("float16", "bfloat16"):  # Arrow lacks bfloat16
            name = "float32"
        found = pa.type_for_alias("string" if self.is_text else name)
        for size in reversed(self.sizes):
            found = pa.list_(found, -1 if size is None else size)
        return found

    def column(self, rows: Sequence[np.ndarray]) -> Any:
        """Returns the column of the outputs of rows.

        Raises:
            ExportError: They are more than a column holds.
        """
        pa = require_pyarrow()
        flat = np.concatenate([np.ravel(row) for row in rows])
        if self.is_text:
            texts = [
                text if isinstance(text, str) else text.decode(errors="replace")
                for text in flat
            ]
            values = pa.array(texts, pa.string())
        else:
            if self.dtype in ("float16", "bfloat16"):
                flat = flat.astype("float32")
            values = pa.array(flat)
        for axis, size in reversed([*enumerate(self.sizes)]):
            if size is not None:
                values = pa.FixedSizeListArray.from_arrays(values, size)
                continue
            # A list for each element before this axis, for each row.
            counts = [int(np.prod(row.shape[:axis])) for row in rows]
            sizes = np.repeat([row.shape[axis] for row in rows], counts)
            offsets = np.concatenate([[0], np.cumsum(sizes, dtype="int64")])
            if offsets[-1] > _MOST:
                raise ExportError(
                    f"Output '{self.name}' of a window has {offsets[-1]} "
                    f"elements, and Arrow's lists hold {_MOST}: `window` "
                    "must be smaller"
                )
            offsets = offsets.astype("int32")
            values = pa.ListArray.from_arrays(offsets, values)
        return values
