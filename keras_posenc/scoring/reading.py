"""Reads files as tables of some rows at a time."""

import csv
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.scoring.columns import Input, require_pyarrow

_BUFFER = 2**20  # bytes of a column that are read at once
_CELL = 2**26  # bytes of the longest cell
_WINDOW = 2**26  # bytes of the rows that are read at once


def read(
    path: Path,
    format: str,
    *,
    inputs: Sequence[Input],
    keep: Sequence[str],
    window: int,
) -> Iterator[Any]:
    """Yields the rows of a file in tables, at least one, even if empty.

    What Arrow or a reader cannot read raises an error of theirs.
    """
    if not path.stat().st_size:
        raise ValueError(
            "it has 0 bytes, so perhaps writing it was interrupted: write it "
            "again, or move it away"
        )
    if format == "parquet":
        columns = [*(each.column for each in inputs), *keep]
        yield from _read_parquet(path, columns, window)
        return
    pa = require_pyarrow()
    # Kept columns have the types of their first rows.
    types = dict.fromkeys(keep)
    types |= {each.column: each.arrow_type for each in inputs}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = _csv(file) if format == "csv" else _json_lines(file)
        is_first = True
        while (some := [*itertools.islice(rows, window)]) or is_first:
            if is_first and some:
                names = dict.fromkeys(name for row in some for name in row)
                _check_names([*types], [*names])
            is_first = False
            arrays = {}
            for name in types:
                array = pa.array([row.get(name) for row in some])
                if pa.types.is_null(array.type):
                    array = array.cast(types[name] or pa.string())
                types[name] = types[name] or array.type
                if pa.types.is_string(array.type) != pa.types.is_string(
                    types[name]
                ):
                    raise ValueError(
                        f"Column '{name}' is of {array.type}, not {types[name]}"
                    )
                # A cast, unlike `pa.array`, does not cut 1.9 to an integer.
                cast = arrays[name] = array.cast(types[name])
                if array.type != types[name] and cast.cast(array.type) != array:
                    raise ValueError(
                        f"Column '{name}' is of {array.type}, not {types[name]}"
                    )
            yield pa.table(arrays)


def _check_names(wanted: Sequence[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(
                f"Column '{name}' is not in it. Its columns: "
                f"{', '.join(names) or 'none'}"
            )


def _read_parquet(
    path: Path, columns: Sequence[str], window: int
) -> Iterator[Any]:
    pa = require_pyarrow()
    import pyarrow.parquet as pq

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
        if not metadata.num_rows:
            yield schema.empty_table().select(names)
        for batch in file.iter_batches(batch_size=window, columns=names):
            yield pa.Table.from_batches([batch])


def _csv(file: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file, by the names in its first line."""
    csv.field_size_limit(_CELL)
    # Without `strict`, an open quote would take the rest of the file.
    lines = csv.reader(file, strict=True)
    try:
        header = next(lines, [])
        if not any(header) or len({*header}) < len(header):
            raise csv.Error("it must name its columns, each once")
        for line in lines:
            if not line and len(header) == 1:
                line = [""]  # a blank line is an empty field
            if line and len(line) != len(header):
                raise csv.Error(
                    f"{len(line)} fields, and the header has {len(header)}"
                )
            if line:
                yield dict(zip(header, line, strict=True))
    except csv.Error as error:
        raise ValueError(f"line {lines.line_num}: {error}") from error


def _json_lines(file: Any) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is not a JSON object")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number}: {error}") from error
        yield row
