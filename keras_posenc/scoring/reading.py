"""Reads files as tables of some rows at a time."""

import contextlib
import csv
import io
import itertools
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_posenc.scoring.arrow import require_pyarrow
from keras_posenc.scoring.inputs import Input

_BUFFER = 2**20  # bytes of a column that are read at once
_LINE = 2**26  # bytes of the longest line, or cell
_WINDOW = 2**26  # bytes of the rows that are read at once


class Part(NamedTuple):
    """Some rows of a file.

    Attributes:
        table: The columns that are needed. A row that is invalid as a whole is
            null there.
        wrong: The reasons, by row.
        done: About how many bytes of the file have been read.
    """

    table: Any
    wrong: dict[int, str]
    done: int


# The first bytes of files that are not UTF-8, whatever their names are.
_SIGNS = {
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# Errors of Arrow for a value without a type, or of another one.
_UNFIT = (ValueError, TypeError, OverflowError)
# A row of a file by column, or what is wrong with it; and its bytes.
Row = Mapping[str, Any] | str
Rows = Iterator[tuple[Row, int]]


def read(
    path: Path,
    format: str,
    *,
    inputs: Sequence[Input],
    keep: Sequence[str],
    window: int,
) -> Iterator[Part]:
    """Yields the rows of a file in parts, at least one, even if empty.

    Args:
        path: The file.
        format: As `Fragment.format`.
        inputs: The inputs of the signature.
        keep: Other columns.
        window: How many rows at a time; fewer if they are large.

    Raises:
        Exception: Whatever the format's reader raises for a damaged file.
    """
    if not path.stat().st_size:
        raise ValueError(
            "it has 0 bytes, so perhaps writing it was interrupted: write it "
            "again, or move it away"
        )
    if format == "parquet":
        yield from _read_parquet(path, inputs, keep, window)
        return

    def ahead() -> Generator[Row, None, None]:
        with path.open("rb") as file:
            for row, _ in _READERS[format](file):
                yield row

    columns = _Columns(inputs, keep, format == "tfrecord", ahead)
    if format == "csv":  # the header names them, even without rows
        names = columns_of(path, format, wanted=columns.names, window=window)
        columns.check_names(names)
    with path.open("rb") as file:
        found = _READERS[format](file)
        is_first = True
        while (some := _some(found, window)) or is_first:
            is_first = False
            yield columns.part(some, file.tell())


def columns_of(
    path: Path, format: str, *, wanted: Sequence[str], window: int
) -> list[str]:
    """Returns the columns of a file, or enough to show that it has `names`.

    Raises:
        Exception: As `read` does.
    """
    if format == "parquet":
        require_pyarrow()
        import pyarrow.parquet as pq

        return pq.read_schema(path).names
    if format == "tfrecord":  # importing its reader takes seconds
        return [*wanted]
    names: dict[str, None] = {}
    with path.open("rb") as file:
        if format == "csv":
            _check_begin(file)
            with _text(file) as text:
                lines = csv.reader(text, strict=True)
                with _line_named(lines):
                    return _header(lines)
        for row, _ in itertools.islice(_READERS[format](file), window):
            if not isinstance(row, str):
                names.update(dict.fromkeys(row))
                if {*wanted} <= {*names}:
                    break
    return [*names] or [*wanted]


def _some(found: Rows, window: int) -> list[Row]:
    """Returns the next rows: at most `window`, or the bytes of one."""
    some: list[Row] = []
    held = 0
    for row, size in found:
        some.append(row)
        held += size
        if len(some) == window or held >= _WINDOW:
            break
    return some


def _read_parquet(
    path: Path, inputs: Sequence[Input], keep: Sequence[str], window: int
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
        schema, count = file.schema_arrow, max(1, file.metadata.num_rows)
        wanted = {*(each.column for each in inputs), *keep}
        names = [name for name in schema.names if name in wanted]
        if wanted - {*names}:  # an error that lists those of the file
            yield Part(schema.empty_table(), {}, size)
            return
        done, rows = 0, _rows_of_window(file.metadata, names, window)
        for batch in file.iter_batches(batch_size=rows, columns=names):
            done += batch.num_rows
            table = pa.Table.from_batches([batch])
            yield Part(table, {}, size * done // count)
        if not done:
            yield Part(schema.empty_table().select(names), {}, size)


def _rows_of_window(metadata: Any, names: Sequence[str], window: int) -> int:
    """Returns how many rows a window has, by the file's largest group."""
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        held = sum(
            chunk.total_uncompressed_size
            for chunk in map(group.column, range(group.num_columns))
            if any(
                f"{chunk.path_in_schema}.".startswith(f"{n}.") for n in names
            )
        )
        if held > 0:
            window = min(window, max(1, _WINDOW * group.num_rows // held))
    return window


def _check_begin(file: Any) -> None:
    """Raises `ValueError` for a file that does not start as a text."""
    begin = file.read(4)
    file.seek(0)
    for sign, what in _SIGNS.items():
        if begin.startswith(sign):
            raise ValueError(f"it is {what}, and not UTF-8")


def _csv(file: Any) -> Rows:
    text = _text(file)
    lines = csv.reader(text, strict=True)
    try:
        with _line_named(lines):
            header = _header(lines)
            for line in lines:
                size = sum(map(len, line))
                if len(line) == len(header):
                    yield dict(zip(header, line, strict=True)), size
                elif line:
                    yield (
                        f"the row has {len(line)} fields, and the header "
                        f"{len(header)}",
                        size,
                    )
                elif len(header) == 1:  # a blank line is an empty field
                    yield {header[0]: ""}, 0
    finally:
        text.detach()


@contextlib.contextmanager
def _line_named(lines: Any) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise ValueError(f"line {lines.line_num}: {error}") from error


def _text(file: Any) -> io.TextIOWrapper:
    # Without `strict`, an open quote would take the rest of the file.
    csv.field_size_limit(_LINE)
    # Invalid UTF-8 is reported with its row, where a column needs it.
    return io.TextIOWrapper(
        file, encoding="utf-8-sig", errors="surrogateescape", newline=""
    )


def _header(lines: Any) -> list[str]:
    header: list[str] = next(lines, [])
    if not header:
        raise ValueError("its first line is blank, and must name its columns")
    for name in header:
        if name and header.count(name) > 1:
            raise ValueError(f"its header names '{name}' twice")
    return header


def _json_lines(file: Any) -> Rows:
    _check_begin(file)
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
        row: Row = "the line is not a JSON object"
        try:
            found = json.loads(line)
            row = found if isinstance(found, dict) else row
        except (ValueError, RecursionError) as error:
            row = f"the line is not JSON: {error}"
        if is_named_json and isinstance(row, str):
            raise ValueError(f"it is not JSON lines: {row}")
        is_named_json = False
        yield row, size


def _records(file: Any) -> Rows:
    import tensorflow as tf

    for record in tf.data.TFRecordDataset(file.name).as_numpy_iterator():
        # With length and checksums, to know how far the file is read.
        file.seek(len(record) + 16, io.SEEK_CUR)
        try:
            example = tf.train.Example.FromString(record)
        except Exception:  # protobuf's own, which depends on its version
            yield "the record is not a tf.train.Example", len(record)
            continue
        row = {}
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            row[name] = [*getattr(feature, kind).value] if kind else None
        yield row, len(record)


_READERS: dict[str, Callable[[Any], Rows]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "tfrecord": _records,
}


class _Columns:
    """Makes tables of rows, all with the same types.

    Kept columns have the types of the first rows, or of the first that are not
    null; a row of another type is invalid.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        keep: Sequence[str],
        unwrap: bool,
        ahead: Callable[[], Generator[Row, None, None]],
    ) -> None:
        self._inputs = {each.column: each for each in inputs}
        self._keep = [name for name in keep if name not in self._inputs]
        self._unwrap = unwrap
        self._ahead = ahead  # all rows from the first on
        self._types: dict[str, Any] = {}
        self._single: set[str] = set()
        self._has_names = False

    @property
    def names(self) -> list[str]:
        """All columns that are needed."""
        return [*self._inputs, *self._keep]

    def part(self, rows: Sequence[Row], done: int) -> Part:
        """Returns a table of rows; `done` bytes of the file have been read."""
        pa = require_pyarrow()
        whole = [row for row in rows if not isinstance(row, str)]
        if whole and not self._has_names:
            self.check_names([*dict.fromkeys(n for row in whole for n in row)])
        wrong = {i: row for i, row in enumerate(rows) if isinstance(row, str)}
        columns: dict[str, list[Any]] = {}
        for name in self.names:
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
            reason = f"'{name}' has a number that is not {each.dtype}"
            _take_out(_type(each), columns[name], wrong, reason)
        types = {
            **{name: _type(each) for name, each in self._inputs.items()},
            **self._types,
        }
        arrays = [pa.array(v, types[name]) for name, v in columns.items()]
        return Part(pa.table(arrays, names=[*columns]), wrong, done)

    def check_names(self, names: Sequence[str]) -> None:
        """Raises `ValueError` for a column that none of the first rows has."""
        self._has_names = True
        for name in self.names:
            if name not in names:
                raise ValueError(
                    f"Column '{name}' is not in it. Its columns: "
                    f"{', '.join(names) or 'none'}"
                )

    def _kept(
        self, name: str, values: list[Any], wrong: dict[int, str]
    ) -> list[Any]:
        if name not in self._types:
            if self._unwrap and all(v is None or len(v) < 2 for v in values):
                self._single.add(name)
        if self._unwrap:
            values = [self._unwrapped(name, value) for value in values]
        if name not in self._types:
            self._types[name] = self._type_of(name, values)
        wanted = self._types[name]
        reason = f"'{name}' is not {wanted}, as in the first rows"
        _take_out(wanted, values, wrong, reason)
        return values

    def _type_of(self, name: str, values: Sequence[Any]) -> Any:
        """Returns the type of the first rows, or of later ones if unknown.

        Where they differ it is that of the first with a type.
        """
        pa = require_pyarrow()
        found = pa.null()
        for some in (values, *([value] for value in values)):
            with contextlib.suppress(*_UNFIT):
                found = pa.array(some).type
            if not pa.types.is_null(found):
                break
        rows = self._ahead()
        while _is_open(found) and (row := next(rows, None)) is not None:
            value = None if isinstance(row, str) else row.get(name)
            if self._unwrap:
                value = self._unwrapped(name, value)
            with contextlib.suppress(*_UNFIT):
                both = found, pa.array([value]).type
                found = (
                    pa.unify_schemas(
                        [pa.schema([(name, type)]) for type in both],
                        promote_options="permissive",
                    )
                    .field(name)
                    .type
                )
        rows.close()
        return pa.string() if pa.types.is_null(found) else found

    def _unwrapped(self, name: str, value: Any) -> Any:
        """Unpacks a feature, a list: of texts, or perhaps of one value."""
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


def _is_open(type: Any) -> bool:
    """Returns whether all values of a type were null, or empty, so far."""
    types = require_pyarrow().types
    if types.is_list(type):
        return _is_open(type.value_type)
    if types.is_struct(type):
        return any(_is_open(field.type) for field in type)
    return types.is_null(type)


def _take_out(
    wanted: Any, values: list[Any], wrong: dict[int, str], reason: str
) -> None:
    """Replaces by null what a column of a type cannot hold unchanged."""
    if _are_of(wanted, values):
        return
    for index, value in enumerate(values):
        if not _are_of(wanted, [value]):
            values[index] = None
            wrong.setdefault(index, reason)


def _are_of(wanted: Any, values: Sequence[Any]) -> bool:
    """Returns whether a column of a type holds values unchanged."""
    pa = require_pyarrow()
    try:
        pa.array(values, wanted)
        return _holds(wanted, pa.array(values).type)
    except _UNFIT:
        return False


def _holds(wanted: Any, given: Any) -> bool:
    """Returns whether a type loses nothing in another, as Arrow casts it."""
    types = require_pyarrow().types
    if given == wanted or types.is_null(given):
        return True
    if types.is_list(given) and types.is_list(wanted):
        return _holds(wanted.value_type, given.value_type)
    if types.is_struct(given) and types.is_struct(wanted):
        names = {field.name for field in wanted}
        return all(
            field.name in names
            and _holds(wanted.field(field.name).type, field.type)
            for field in given
        )
    # For numbers out of range, Arrow itself raises.
    return (
        types.is_integer(given)
        and (types.is_integer(wanted) or types.is_floating(wanted))
    ) or (types.is_string(given) and types.is_binary(wanted))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _type(each: Input) -> Any:
    """Returns the type of an input's column."""
    pa = require_pyarrow()
    if each.kind == "text":
        return pa.string()
    if each.dtype == "bool":
        found = pa.bool_()
    else:
        found = pa.float64() if "float" in each.dtype else pa.int64()
    return found if each.kind == "number" else pa.list_(found)


def _as_input(each: Input, value: Any) -> Any:
    """Returns a value for its column; raises `ValueError` with the reason."""
    if value is None:
        return None
    is_one = each.kind in ("text", "number")
    if is_one and isinstance(value, list) and len(value) == 1:
        (value,) = value
    if each.kind == "text":
        if not isinstance(value, str | bytes):
            raise ValueError(f"is not {each.takes}")
        try:
            if isinstance(value, str) and value.isascii():
                return value
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
        raise ValueError("has a number beyond 64 bits")
    return value
