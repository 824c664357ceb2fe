"""Columns of tables as inputs and outputs of a signature."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.export.errors import ExportError
from keras_posenc.export.inspect import Tensor


def require_pyarrow() -> Any:
    """Returns pyarrow; raises `ImportError` that names the extra."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Scoring tables needs pyarrow: pip install 'keras-posenc[scoring]'"
        ) from error
    return pyarrow


_TAKES = {
    "text": "text: strings",
    "ids": "ids: lists of integers",
    "flags": "flags: lists of booleans",
    "vector": "vectors: lists of numbers",
    "number": "a number",
}


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of a signature, and the column that it comes from."""

    name: str
    column: str
    kind: str  # of `_TAKES`
    sizes: tuple[int | None, ...]  # its shape without the batch
    dtype: str

    @classmethod
    def of(cls, name: str, tensor: Tensor, column: str) -> "Input":
        """Returns an input; raises `ValueError` if no column can hold it."""
        rank = None if tensor.shape is None else len(tensor.shape)
        sizes = (tensor.shape or ())[1:]
        kind = None
        if tensor.dtype in ("string", "object"):
            kind = "text" if sizes in ((), (1,)) and rank else None
        elif rank == 1:
            kind = "number"
        elif rank == 2 and tensor.dtype == "bool":
            kind = "flags"
        elif rank == 2 and "int" in tensor.dtype:
            kind = "ids"
        elif rank == 2 and sizes[0] is not None:
            kind = "vector"
        if kind is None:
            raise ValueError(
                f"a column cannot be input '{name}', {tensor}, but text, ids "
                "as (batch, length), vectors of a fixed size, or numbers"
            )
        return cls(name, column, kind, sizes, tensor.dtype)

    @property
    def is_sequence(self) -> bool:
        """Whether its rows may have different lengths, padded with 0."""
        return self.kind in ("ids", "flags")

    @property
    def is_padded(self) -> bool:
        """Whether other rows of a batch may make a row longer, or its ids."""
        return self.kind == "text" or (
            self.is_sequence and self.sizes[0] is None
        )

    @property
    def takes(self) -> str:
        """What it takes, in words."""
        return _TAKES[self.kind]

    @property
    def arrow_type(self) -> Any:
        """The type of a column of its rows."""
        pa = require_pyarrow()
        if self.kind == "text":
            return pa.string()
        found = pa.float64() if "float" in self.dtype else pa.int64()
        if self.dtype == "bool":
            found = pa.bool_()
        return found if self.kind == "number" else pa.list_(found)

    def check_type(self, given: Any) -> None:
        """Raises `ValueError` for a column that cannot hold such rows."""
        types = require_pyarrow().types
        if types.is_dictionary(given):
            given = given.value_type
        is_list = hasattr(given, "value_type") and not types.is_map(given)
        value = given.value_type if is_list else given
        is_number = types.is_integer(value) or types.is_floating(value)
        is_text = (
            types.is_string(given)
            or types.is_large_string(given)
            or types.is_binary(given)
            or types.is_large_binary(given)
            or types.is_fixed_size_binary(given)
            or str(given) in ("string_view", "binary_view")
        )
        fits = (
            types.is_null(given)
            or {
                "text": is_text,
                "ids": is_list and types.is_integer(value),
                "flags": is_list and types.is_boolean(value),
                "vector": is_list and is_number,
                "number": types.is_boolean(given)
                if self.dtype == "bool"
                else types.is_integer(given)
                or ("float" in self.dtype and types.is_floating(given)),
            }[self.kind]
        )
        if not fits and not (is_list and types.is_null(value)):
            raise ValueError(
                f"Column '{self.column}' is of type {given}, and input "
                f"'{self.name}' takes {self.takes}"
                + f" ({self.dtype}): the file has no tokenizer. Score a "
                "SavedModel that takes strings, or tokenize first"
                * (is_text and self.kind == "ids")
            )

    def read(
        self, column: Any, max_bytes: int
    ) -> tuple[list[Any], dict[int, str]]:
        """Returns the rows of a column, and why some are invalid, by index."""
        pa = require_pyarrow()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if self.kind == "text" and not pa.types.is_null(column.type):
            # pyarrow does not check that strings are UTF-8: bytes are.
            column = column.cast(pa.large_binary())
        rows: list[Any] = []
        wrong: dict[int, str] = {}
        for index, value in enumerate(column.to_pylist()):
            row, reason = None, "is null"
            if value is not None:
                row, reason = self._row(value, max_bytes)
            if row is None:
                wrong[index] = f"'{self.column}' {reason}"
            rows.append(row)
        return rows, wrong

    def _row(self, value: Any, max_bytes: int) -> tuple[Any, str]:
        """Returns a row as the model takes it; or None and what is wrong."""
        if self.kind == "text":
            if len(value) > max_bytes:
                return None, f"has {len(value)} bytes, beyond {max_bytes}"
            try:
                value.decode()
            except UnicodeDecodeError as error:
                return None, f"is not UTF-8 from byte {error.start} on"
            return value, ""
        dtype = np.dtype(self.dtype)
        values = [value] if self.kind == "number" else value
        if None in values:
            return None, "holds a null"
        size = self.sizes[0] if self.sizes else 1
        if self.kind == "vector" and len(values) != size:
            return None, f"has {len(values)} numbers instead of {size}"
        if self.is_sequence:
            if size is not None and len(values) > size:
                return None, f"has length {len(values)}, beyond {size}"
            if len(values) * dtype.itemsize > max_bytes:
                count = len(values) * dtype.itemsize
                return None, f"has {count} bytes, beyond {max_bytes}"
        if dtype.kind in "iu" and values:
            limits = np.iinfo(dtype)
            low, high = min(values), max(values)
            if low < limits.min or high > limits.max:
                far = low if low < limits.min else high
                return None, f"has {far}, which is not {self.dtype}"
        with np.errstate(over="ignore"):  # it becomes the reason below
            row = np.array(values, dtype)
        for place in np.flatnonzero(np.isinf(row)) if dtype.kind == "f" else ():
            if not math.isinf(far := values[place]):
                return None, f"has {far}, which is not {self.dtype}"
        return (row[0] if self.kind == "number" else row), ""

    def lengths(self, values: np.ndarray) -> Any:
        """Returns how long the rows of a case are, without padding."""
        if self.kind == "text":
            return [len(text) for text in values.flat]
        places = np.arange(1, values.shape[1] + 1)
        return np.max((values != 0) * places, axis=1, initial=0)

    def cost(self, row: Any) -> int:
        """Returns what a row adds to its batch: bytes that may be padded."""
        if self.kind == "text":
            return len(row)
        return row.nbytes if self.is_sequence else 0

    def stack(self, rows: Sequence[Any], count: int) -> np.ndarray:
        """Stacks rows that `read` returned to an array of `count`, or more."""
        if self.kind == "text":
            texts = np.full((count,), b"", object)
            texts[: len(rows)] = rows
            return texts.reshape(count, *self.sizes)
        if self.kind == "number":
            numbers = np.zeros((count,), self.dtype)
            numbers[: len(rows)] = rows
            return numbers
        # At least one column: some runtimes cannot have none.
        length = self.sizes[0] or max(1, *map(len, rows))
        array = np.zeros((count, length), self.dtype)
        for place, row in enumerate(rows):
            array[place, : len(row)] = row
        return array


_MOST_OFFSET = 2**31 - 1  # Arrow's lists have offsets of 32 bits


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a signature, which names its column."""

    name: str
    sizes: tuple[int | None, ...]  # its shape without the batch
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
        """Returns the column of the outputs of rows."""
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
            if offsets[-1] > _MOST_OFFSET:
                raise ExportError(
                    f"Output '{self.name}' of a window has {offsets[-1]} "
                    f"elements, and Arrow's lists hold {_MOST_OFFSET}: "
                    "`window` must be smaller"
                )
            offsets = offsets.astype("int32")
            values = pa.ListArray.from_arrays(offsets, values)
        return values
