"""Files as tables of some rows, never as a whole."""

import contextlib
import csv
import io
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_posenc.scoring.arrow import require_pyarrow
from keras_posenc.scoring.inputs import Input

_BUFFER = 2**20  # bytes of a column that are read at a time
_LINE = 2**26  # bytes of the longest line


class Part(NamedTuple):
    """Some rows of a file.

    Attributes:
        table: The columns that are wanted. What is wrong with a row beyond
            its columns makes it null.
        wrong: The reasons, by row.
        done: How many bytes of the file were read up to here, about.
    """

    table: Any
    wrong: dict[int, str]
    done: int


# What Arrow raises of a value that is of no type, or of another one.
_UNFIT = (ValueError, TypeError, OverflowError)
# A row of a file by its columns; or what is wrong with it.
Row = Mapping[str, Any] | str


def read(
    path: Path,
    format: str,
    *,
    inputs: Sequence[Input],
    keep: Sequence[str],
    window: int,
) -> Iterator[Part]:
    """Yields the rows of a file, at least once, if it has none.

    Args:
        path: The file.
        format: As `Fragment.format`.
        inputs: What is to be asked.
        keep: Further columns.
        window: How many rows at a time.

    Raises:
        Exception: Whatever its reader says of a file that is broken.
    """
    if format == "parquet":
        yield from _read_parquet(path, inputs, keep, window)
        return
    rows = {"csv": _csv, "jsonl": _json_lines, "tfrecord": _records}[format]
    columns = _Columns(inputs, keep, unwrap=format == "tfrecord")
    with path.open("rb") as file:
        found = rows(file)
        is_first = True
        while (some := [*itertools.islice(found, window)]) or is_first:
            is_first = False
            yield columns.part(some, file.tell())


def _read_parquet(
    path: Path, inputs: Sequence[Input], keep: Sequence[str], window: int
) -> Iterator[Part]:
    pa = require_pyarrow()
    import pyarrow.parquet as pq

    size = path.stat().st_size
    # Else a group of rows, which may be all there are, is read at once.
    options = {"buffer_size": _BUFFER, "pre_buffer": False}
    with pq.ParquetFile(path, **options) as file:
        schema, count = file.schema_arrow, max(1, file.metadata.num_rows)
        wanted = {*(each.column for each in inputs), *keep}
        names = [name for name in schema.names if name in wanted]
        if wanted - {*names}:  # which is told beside those that there are
            yield Part(schema.empty_table(), {}, size)
            return
        done = 0
        for batch in file.iter_batches(batch_size=window, columns=names):
            done += batch.num_rows
            table = pa.Table.from_batches([batch])
            yield Part(table, {}, size * done // count)
        if not done:
            yield Part(schema.empty_table().select(names), {}, size)


def _csv(file: Any) -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)
    # What is no UTF-8 is told of its row, by whoever needs it.
    text = io.TextIOWrapper(
        file, encoding="utf-8-sig", errors="surrogateescape", newline=""
    )
    try:
        lines = csv.reader(text)
        header = next(lines, [])
        for line in lines:
            if len(line) == len(header):
                yield dict(zip(header, line, strict=True))
            elif line:
                yield (
                    f"the row has {len(line)} fields, and the header "
                    f"{len(header)}"
                )
    finally:
        text.detach()


def _json_lines(file: Any) -> Iterator[Row]:
    while line := file.readline(_LINE):
        if len(line) == _LINE and not line.endswith(b"\n"):
            raise ValueError(f"it has a line of more than {_LINE} bytes")
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield f"the line is no JSON: {error}"
            continue
        yield row if isinstance(row, dict) else "the line is no JSON object"


def _records(file: Any) -> Iterator[Row]:
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(file.name).as_numpy_iterator():
        # With its length and checksums: how far the file is read.
        file.seek(len(record) + 16, io.SEEK_CUR)
        try:
            example = tf.train.Example.FromString(record)
        except Exception:  # protobuf's own, of whichever version
            yield "the record is no tf.train.Example"
            continue
        row = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            row[name] = [*getattr(feature, kind).value] if kind else None
        yield row


class _Columns:
    """Makes tables of rows, all of the same types.

    Kept columns are of the types that the first rows have; a row that has
    another one is wrong.
    """

    def __init__(
        self, inputs: Sequence[Input], keep: Sequence[str], unwrap: bool
    ) -> None:
        self._inputs = {each.column: each for each in inputs}
        self._keep = [name for name in keep if name not in self._inputs]
        self._unwrap = unwrap
        self._types: dict[str, Any] = {}
        self._single: set[str] = set()
        self._has_names = False

    def part(self, rows: Sequence[Row], done: int) -> Part:
        """A table of some rows, once the file was read up to here."""
        pa = require_pyarrow()
        whole = [row for row in rows if not isinstance(row, str)]
        self._check_names(whole)
        wrong = {i: row for i, row in enumerate(rows) if isinstance(row, str)}
        columns: dict[str, list[Any]] = {}
        for name in (*self._inputs, *self._keep):
            columns[name] = [
                None if isinstance(row, str) else row.get(name) for row in rows
            ]
        for name in self._keep:
            columns[name] = self._kept(name, columns[name], wrong)
        for name, each in self._inputs.items():
            for index, value in enumerate(columns[name]):
                try:
                    columns[name][index] = _as_input(each, value)
                except ValueError as error:
                    wrong.setdefault(index, f"'{name}' {error}")
                if index in wrong:
                    columns[name][index] = None
        types = {
            **{name: _type(each) for name, each in self._inputs.items()},
            **self._types,
        }
        arrays = [pa.array(v, types[name]) for name, v in columns.items()]
        return Part(pa.table(arrays, names=[*columns]), wrong, done)

    def _check_names(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises `ValueError` for a column that none of the first rows has."""
        if not rows or self._has_names:
            return
        self._has_names = True
        names = dict.fromkeys(name for row in rows for name in row)
        for name in (*self._inputs, *self._keep):
            if name not in names:
                raise ValueError(
                    f"Column '{name}' is not in it. Its columns: "
                    f"{', '.join(names) or 'none'}"
                )

    def _kept(
        self, name: str, values: list[Any], wrong: dict[int, str]
    ) -> list[Any]:
        pa = require_pyarrow()
        if name not in self._types:
            if self._unwrap and all(v is None or len(v) < 2 for v in values):
                self._single.add(name)
        if self._unwrap:
            values = [self._unwrapped(name, value) for value in values]
        if name not in self._types:
            self._types[name] = _type_of(values)
        try:
            pa.array(values, self._types[name])
        except _UNFIT:
            for index, value in enumerate(values):
                try:
                    pa.array([value], self._types[name])
                except _UNFIT:
                    values[index] = None
                    wrong.setdefault(
                        index,
                        f"'{name}' is no {self._types[name]}, as in the first "
                        "rows",
                    )
        return values

    def _unwrapped(self, name: str, value: Any) -> Any:
        """A feature, which is always a list: texts, and perhaps one value."""
        if value is None:
            return None
        decoded = [
            each.decode()
            if isinstance(each, bytes) and _is_utf8(each)
            else each
            for each in value
        ]
        if name in self._single and len(decoded) < 2:
            return decoded[0] if decoded else None
        return decoded


def _type_of(values: Sequence[Any]) -> Any:
    """The type of all values, else of the first that has one."""
    pa = require_pyarrow()
    for some in (values, *([value] for value in values)):
        with contextlib.suppress(*_UNFIT):
            if (found := pa.array(some).type) != pa.null():
                return found
    return pa.string()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _type(each: Input) -> Any:
    """The type of an input's column."""
    pa = require_pyarrow()
    if each.kind == "text":
        return pa.string()
    if each.dtype == "bool":
        found = pa.bool_()
    else:
        found = pa.float64() if "float" in each.dtype else pa.int64()
    return found if each.kind == "number" else pa.list_(found)


def _as_input(each: Input, value: Any) -> Any:
    """A value as its column has it; raises `ValueError` with the reason."""
    if value is None:
        return None
    is_one = each.kind in ("text", "number")
    if is_one and isinstance(value, list) and len(value) == 1:
        (value,) = value
    if each.kind == "text":
        if not isinstance(value, str | bytes):
            raise ValueError(f"is not {each.takes}")
        try:
            if isinstance(value, str):
                value = value.encode("utf-8", "surrogateescape")
            return value.decode()
        except UnicodeError as error:
            place = (
                f" from byte {error.start} on"
                if isinstance(error, UnicodeDecodeError)
                else ""
            )
            raise ValueError(f"is not UTF-8{place}") from error
    wanted: Any = int
    if "float" in each.dtype:
        wanted = (int, float)
    elif each.dtype == "bool":
        wanted = bool
    values = [value] if is_one else value
    if not isinstance(values, list) or not all(
        v is None
        or (isinstance(v, wanted) and isinstance(v, bool) == (wanted is bool))
        for v in values
    ):
        raise ValueError(f"is not {each.takes}")
    if wanted is int and any(v and abs(v) >= 2**63 for v in values):
        raise ValueError("holds a number beyond 64 bits")
    return value
