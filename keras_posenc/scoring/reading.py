"""Reads files as tables of some rows at a time."""

import contextlib
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_posenc.scoring.columns import Input, require_pyarrow

_BUFFER = 2**20  # bytes of a column that are read at once
_LINE = 2**26  # bytes of the longest line, or cell
_WINDOW = 2**26  # bytes of the rows that are read at once

# The first bytes of files that are not UTF-8, whatever their names are.
_SIGNS = {
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Errors of Arrow for a value without a type, or of another one.
_UNFIT = (ValueError, TypeError, OverflowError, RecursionError)
# A row by column, or what is wrong with it; and its bytes.
Rows = Iterator[tuple[Mapping[str, Any] | str, int]]


class ColumnError(ValueError):
    """A file lacks a column."""


class Part(NamedTuple):
    """Some rows, why some are wrong, and how many bytes were read."""

    table: Any
    wrong: dict[int, str]
    done: int


def read(
    path: Path,
    format: str,
    *,
    inputs: Sequence[Input],
    keep: Sequence[str],
    window: int,
) -> Iterator[Part]:
    """Yields the rows of a file in parts, at least one, even if empty."""
    if not path.stat().st_size:
        raise ValueError(
            "it has 0 bytes, so perhaps writing it was interrupted: write it "
            "again, or move it away"
        )
    if format == "parquet":
        columns = [*(each.column for each in inputs), *keep]
        yield from _read_parquet(path, columns, window)
        return
    with path.open("rb") as file:
        begin = file.read(4)
    for sign, what in _SIGNS.items():
        if begin.startswith(sign):
            raise ValueError(f"it is {what}, and not UTF-8")
    make_rows, options = _READERS[format]
    with path.open(**options) as file:
        names, rows = make_rows(file)
        # Kept columns first: where one is wrong, the inputs become null.
        types: dict[str, Any] = dict.fromkeys(keep)
        types |= {each.column: each.arrow_type for each in inputs}
        for name in keep:
            if types[name] == require_pyarrow().binary():  # a text
                types[name] = require_pyarrow().string()
        takes = {each.column: each.takes for each in inputs}
        is_first = True
        while (some := _some(rows, window)) or is_first:
            whole = [row for row in some if not isinstance(row, str)]
            names = names or [*dict.fromkeys(n for row in whole for n in row)]
            if is_first and names:
                _check_names([*takes, *keep], names)
            is_first = False
            wrong = {i: x for i, x in enumerate(some) if isinstance(x, str)}
            arrays = {}
            for name in types:
                values = [
                    None
                    if isinstance(row, str) or (name in takes and i in wrong)
                    else row.get(name)
                    for i, row in enumerate(some)
                ]
                if types[name] is None:
                    types[name] = _type_of(values)
                what = takes.get(name, f"{types[name]}, as in the first rows")
                reason = f"'{name}' is not {what}"
                arrays[name] = _array(values, types[name], wrong, reason)
            table = require_pyarrow().table(arrays)
            yield Part(table, wrong, getattr(file, "buffer", file).tell())


def _check_names(wanted: Sequence[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ColumnError(
                f"Column '{name}' is not in it. Its columns: "
                f"{', '.join(names) or 'none'}"
            )


def _some(rows: Rows, window: int) -> list[Mapping[str, Any] | str]:
    """Returns the next rows: at most `window`, or the bytes of one."""
    some: list[Mapping[str, Any] | str] = []
    held = 0
    for row, size in rows:
        some.append(row)
        held += size
        if len(some) == window or held >= _WINDOW:
            break
    return some


def _read_parquet(
    path: Path, columns: Sequence[str], window: int
) -> Iterator[Part]:
    pa = require_pyarrow()
    import pyarrow.parquet as pq

    size = path.stat().st_size
    # Without a buffer, a whole group of rows is read at once, which may be the
    # whole file; and without checksums, flipped bits would become numbers.
    options = {
        "buffer_size": _BUFFER,
        "pre_buffer": False,
        "page_checksum_verification": True,
    }
    with pq.ParquetFile(path, **options) as file:
        metadata, schema = file.metadata, file.schema_arrow
        _check_names(columns, schema.names)
        names = [name for name in schema.names if name in columns]
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            held = sum(
                chunk.total_uncompressed_size
                for chunk in chunks
                if chunk.path_in_schema.partition(".")[0] in names
            )
            rows = _WINDOW * group.num_rows // max(1, held)
            window = min(window, max(1, rows))
        done = 0
        for batch in file.iter_batches(batch_size=window, columns=names):
            done += batch.num_rows
            table = pa.Table.from_batches([batch])
            yield Part(table, {}, size * done // metadata.num_rows)
        if not done:
            yield Part(schema.empty_table().select(names), {}, size)


def _csv(file: Any) -> tuple[list[str], Rows]:
    """Returns the columns of a file, and its rows."""
    csv.field_size_limit(_LINE)
    # Without `strict`, an open quote would take the rest of the file.
    lines = csv.reader(file, strict=True)
    header = next(lines, [])
    named = [name for name in header if name]
    if not named or len({*named}) < len(named):
        raise ValueError("its first line must name its columns, each once")

    def rows() -> Rows:
        try:
            for line in lines:
                if not line and len(header) == 1:
                    line = [""]  # a blank line is an empty field
                if len(line) == len(header):
                    row = dict(zip(header, line, strict=True))
                    yield row, sum(map(len, line))
                elif line:
                    reason = f"the row has {len(line)} fields, and the header "
                    yield f"{reason}{len(header)}", sum(map(len, line))
        except csv.Error as error:
            raise ValueError(f"line {lines.line_num}: {error}") from error

    return header, rows()


def _json_lines(file: Any) -> tuple[None, Rows]:
    """Returns the rows of a file, whose columns are known from these."""

    def rows() -> Rows:
        is_named_json = file.name.lower().endswith(".json")
        while line := file.readline(_LINE):
            size = len(line)
            if size == _LINE and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = file.readline(_LINE)
                yield f"the line has more than {_LINE} bytes", size
                continue
            if not line.strip():
                continue
            row: Any = "the line is not a JSON object"
            try:
                found = json.loads(line)
                row = found if isinstance(found, dict) else row
            except (ValueError, RecursionError) as error:
                row = f"the line is not JSON: {error}"
            if is_named_json and isinstance(row, str):
                raise ValueError(f"it is not JSON lines: {row}")
            is_named_json = False
            yield row, size

    return None, rows()


_READERS: dict[str, tuple[Any, dict[str, Any]]] = {
    # Invalid UTF-8 is reported with its row, where a column needs it.
    "csv": (
        _csv,
        {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""},
    ),
    "jsonl": (_json_lines, {"mode": "rb"}),
}


def _type_of(values: Sequence[Any]) -> Any:
    """Returns the type of the first rows; of the first one if they differ."""
    pa = require_pyarrow()
    try:
        found = pa.array(values).type
    except _UNFIT:
        found = pa.null()
        for value in values:
            with contextlib.suppress(*_UNFIT):
                found = pa.array([value]).type
            if not pa.types.is_null(found):
                break
    return pa.string() if pa.types.is_null(found) else found


def _array(
    values: list[Any], type: Any, wrong: dict[int, str], reason: str
) -> Any:
    """Returns a column; null, with the reason, where a type cannot hold it."""
    pa = require_pyarrow()
    if pa.types.is_binary(type):  # texts, which may be no UTF-8
        values = [
            x.encode("utf-8", "surrogatepass") if isinstance(x, str) else x
            for x in values
        ]

    def array(values: list[Any]) -> Any:
        found = pa.array(values, type)
        if not _is_same(values, found.to_pylist()):
            raise ValueError
        return found

    try:
        return array(values)
    except _UNFIT:
        for index, value in enumerate(values):
            try:
                array([value])
            except _UNFIT:
                values[index] = None
                wrong.setdefault(index, reason)
        return pa.array(values, type)


def _is_same(value: Any, read: Any) -> bool:
    """Returns whether Arrow keeps a value; a struct may lack fields."""
    if isinstance(value, dict) and isinstance(read, dict):
        return value.keys() <= read.keys() and all(
            _is_same(each, read[name]) for name, each in value.items()
        )
    if isinstance(value, list) and isinstance(read, list):
        return all(map(_is_same, value, read))
    return bool(value == read or value != value)  # NaN
