"""Runs an exported file on tables."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.checks import check_names, check_positive_int
from keras_posenc.export.errors import ExportError, in_words
from keras_posenc.export.inspect import (
    Tensor,
    inspect_safe,
    locate,
)
from keras_posenc.export.record import check_record, digests, read_record
from keras_posenc.scoring.columns import Input, Output, require_pyarrow
from keras_posenc.scoring.loading import digest_of, load
from keras_posenc_worker.runtimes import Runner


def pack(
    costs: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    *,
    budget: int,
    most: int,
) -> Iterator[list[int]]:
    """Yields the indices of each batch; in a group, the shortest rows first.

    >>> [*pack([9, 2, 3, 2], [()] * 4, budget=9, most=8)]
    [[1, 3, 2], [0]]

    A batch costs as much as its longest row, times its rows: at most `budget`,
    or it is a single row. It has at most `most` rows, of equal groups.
    """
    batch: list[int] = []
    order = sorted(zip(groups, costs, range(len(costs)), strict=True))
    for group, cost, index in order:
        if batch and (
            max(cost, 1) * (len(batch) + 1) > budget
            or len(batch) == most
            or group != groups[batch[-1]]
        ):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


POSITION, REASON = "position", "reason"
_DEFAULT = "serving_default"
# The same name as in `export/signatures/lengths.py`, which needs Keras.
LENGTHS = "lengths"
MASK = "mask"
_MOST = 1024  # rows of a batch, even if they are short
_TRIALS = 4  # cases that tell whether padding changes outputs
# How runtimes say that memory is full: TensorFlow, and the others.
_NO_MEMORY = {"MemoryError", "ResourceExhaustedError"}
_IN_WORDS = ("Failed to allocate memory", "bad_alloc", "bad allocation")

# How far float32 sums may change with their order, relative to the largest.
_ROUNDING = 1e-5

Rows = Mapping[str, Sequence[Any]]
Outputs = Mapping[str, np.ndarray]


class Scorer:
    """Runs an exported file on the rows of Arrow tables.

    >>> import pathlib, tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> import pyarrow as pa
    >>> model = keras.Sequential([
    ...     keras.Input((2,), name="vector"),
    ...     keras.layers.Dense(1, kernel_initializer="ones", name="sum"),
    ... ])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "sum.tflite"
    ...     _ = kp.export_litert(model, path, max_length=4, verbose=False)
    ...     scorer = kp.Scorer(path)
    ...     good, bad = scorer(pa.table({"vector": [[1.0, 2.0], None]}))
    >>> good.to_pylist(), bad.to_pylist()
    ([{'sum': [3.0]}], [{'position': 1, 'reason': "'vector' is null"}])

    `good, bad = scorer(table)` returns the rows with their outputs, in their
    order, and the rows without outputs, with the reason. A row has the outputs
    that it would have alone. Within a window, rows are sorted by length and
    batched so that padding costs little, and returned in their order. A batch
    that fails is halved until the row that causes it is found. The cases that
    are kept with the file tell whether padding changes outputs. If it does, or
    without cases, only ids of equal length are batched, and texts are run one
    by one.

    The file must be the one that was verified, as recorded by
    `export_saved_model`, `export_litert`, `export_onnx` and `verify`. It is
    loaded at the first table, once for each process. A `Scorer` can be pickled,
    without the loaded file. Needs the extra `scoring`.

    Args:
        path: A SavedModel folder, or the folder of its versions, of which
            the highest is taken; a LiteRT or ONNX file.
        column: The column of texts (strings), ids (lists of integers, padded
            with 0 here) or vectors (lists of as many numbers as the signature
            takes). By default the one with the name of the input. Other inputs
            are taken from the columns with their names; `lengths` of ids are
            counted.
        signature: Name of the signature; by default `serving_default`, or the
            only one.
        keep: Names of other columns to return with the outputs.
        max_bytes: The longest row that is run: bytes of its text, or of its
            ids.
        window: How many rows are sorted, run and returned together.
        budget: The most bytes of padded texts or ids in a batch.
        threads: How many threads work at a batch; None for the runtime's own
            choice. If TensorFlow has computed anything in the process before,
            a SavedModel uses its threads.
        allow_operators: As for `export_saved_model`.
        allow_unverified: Whether to run a file without a record of its
            verification.

    Raises:
        ValueError: There is no such file, or no such signature, or a column
            cannot be its input.
        ExportVerificationError: The file does more than compute, or has no
            record of its verification.
        ImportError: The extra `scoring` is not installed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        column: str | None = None,
        signature: str | None = None,
        keep: Sequence[str] = (),
        max_bytes: int = 20_000,
        window: int = 4096,
        budget: int = 16_384,
        threads: int | None = None,
        allow_operators: Sequence[str] = (),
        allow_unverified: bool = False,
    ) -> None:
        require_pyarrow()
        check_names("allow_operators", allow_operators, "operator names")
        names = check_names("keep", keep, "names of columns")
        self.keep = [*dict.fromkeys(names)]
        for name in {POSITION, REASON}.intersection(names):
            raise ValueError(
                f"`keep` must not be '{name}', a column of the bad rows"
            )
        self.max_bytes = check_positive_int("max_bytes", max_bytes)
        self.window = check_positive_int("window", window)
        self.budget = check_positive_int("budget", budget)
        self.threads = (
            None if threads is None else check_positive_int("threads", threads)
        )
        path, kind = locate(path)
        if kind == "litertlm":
            raise ValueError(
                "Scoring takes no LiteRT-LM packages, which only LiteRT-LM's "
                "engine runs: use them in an application, or with keras-posenc "
                f"chat, verify and inspect. Received: '{path}'"
            )
        inspection = inspect_safe(path, allow_operators)
        known = inspection.signatures
        if signature is None:
            signature = next(iter(known)) if len(known) == 1 else _DEFAULT
        if signature not in known:
            raise ValueError(
                f"'{path}' has no signature '{signature}'. Its signatures: "
                f"{', '.join(known) or 'none'}"
            )
        self.path = path.resolve()
        self.kind = inspection.kind
        self.signature = signature
        try:
            inputs, outputs = known[signature].values()
            self.inputs = _inputs(inputs, column)
            first = inputs[self.inputs[0].name].shape or (None,)
            self._batch = first[0]
            self.outputs = [
                Output.of(name, tensor, self._batch)
                for name, tensor in outputs.items()
            ]
        except ValueError as error:
            raise ValueError(
                f"Signature '{signature}' of '{path}': {error}"
            ) from error
        self._counts_lengths = len(self.inputs) < len(inputs)
        for name in {*self.keep} & {each.name for each in self.outputs}:
            raise ValueError(
                f"`keep` must not name an output. Received: '{name}'"
            )
        files = digests(self.path)
        self.digest = digest_of(files)
        record: Mapping[str, Any] = {}
        if not allow_unverified:
            check_record(self.path, signature, files)
            record = read_record(self.path) or {}
        cases = [
            each
            for each in record.get("cases", ())
            if each["signature"] == signature
            and {x.name for x in self.inputs} <= each["inputs"].keys()
        ]
        self._sequences = [e.name for e in self.inputs if e.is_sequence]
        self._padded = [each for each in self.inputs if each.is_padded]
        trials = (self._trial(each["inputs"]) for each in cases)
        self._trials = [*filter(None, trials)][-_TRIALS:]
        # Whether padding changes outputs; not known yet.
        self._matters: bool | None = None if self._padded else False
        # Axes that are dynamic in the signature: as long as the row's input, or
        # rows of other lengths are not run together.
        self._open = [
            (each.name, axis)
            for each in self.outputs
            for axis, size in enumerate(each.sizes)
            if size is None
        ]
        are_long = [
            each["outputs"][name]["shape"][axis + 1] == self._length(each)
            for name, axis in self._open
            for each in cases
            if name in each["outputs"]
        ]
        self._is_cut = bool(are_long) and all(are_long)
        if not self._is_cut and self._open:
            self._matters = True

    def _trial(self, given: Mapping[str, Any]) -> tuple[Any, Any] | None:
        """Returns a case's shortest row alone, and the case with it first."""
        if not self._padded:
            return None
        lengths = np.max([x.lengths(given[x.name]) for x in self._padded], 0)
        if self._counts_lengths:
            lengths = given[LENGTHS]
        index = int(np.argmin(np.where(lengths > 0, lengths, np.inf)))
        least = lengths[index]
        if not 0 < least < max(lengths):
            return None
        order = [index, *(i for i in range(len(lengths)) if i != index)]
        case = {name: value[order] for name, value in given.items()}
        alone = {
            name: value[[0] * (self._batch or 1)]
            for name, value in case.items()
        }
        for each in self._padded:
            if each.is_sequence:
                alone[each.name] = alone[each.name][:, :least]
        return alone, case

    def _length(self, case: Mapping[str, Any]) -> int | None:
        """Returns how long the rows of a case are, padding included."""
        shape: Sequence[int] = ()
        if len(self._sequences) == 1:
            shape = case["inputs"][self._sequences[0]].shape
        elif not self._sequences and MASK in case["outputs"]:
            shape = case["outputs"][MASK]["shape"]
        return shape[1] if len(shape) == 2 else None

    def schema(self, given: Any) -> tuple[Any, Any]:
        """Returns the schemas of good and bad rows for the schema of a table.

        Dynamic sizes become lists of any length.

        Raises:
            ValueError: A column is missing, or of another type.
        """
        pa = require_pyarrow()
        for name in (*(each.column for each in self.inputs), *self.keep):
            count = len(given.get_all_field_indices(name))
            if count != 1:
                there = "twice in" if count else "not in"
                raise ValueError(
                    f"Column '{name}' is {there} the table. Its columns: "
                    f"{', '.join(given.names) or 'none'}"
                )
        for each in self.inputs:
            each.check_type(given.field(each.column).type)
        kept = [_without_views(given.field(name)) for name in self.keep]
        return (
            pa.schema(
                [*kept, *((each.name, each.type) for each in self.outputs)]
            ),
            pa.schema([(POSITION, pa.int64()), (REASON, pa.string()), *kept]),
        )

    def __call__(self, table: Any) -> tuple[Any, Any]:
        """Returns the rows of a table with outputs, and those without.

        Args:
            table: A `pyarrow.Table` or `RecordBatch`.

        Returns:
            Two tables: the good rows, with the kept columns and one for each
            output; and the bad ones, with `position`, the row in `table`,
            `reason` and the kept columns.

        Raises:
            ValueError: It is not a table, or a column is missing or has
                another type.
            ExportError: The file is missing, has changed, does not load, or
                does not return what its signature says; or there is not
                enough memory for one row.
        """
        pa = require_pyarrow()
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise ValueError(
                "`table` must be a pyarrow.Table or RecordBatch, such as "
                "pyarrow.table({'column': rows}). "
                f"Received: table={reprlib.repr(table)}"
            )
        schemas = self.schema(table.schema)
        parts = [[schema.empty_table()] for schema in schemas]
        for begin in range(0, table.num_rows, self.window):
            found = self._score(table.slice(begin, self.window), begin, schemas)
            for part, each in zip(parts, found, strict=True):
                part.append(each)
        good, bad = map(pa.concat_tables, parts)
        return good, bad

    def _score(
        self, table: Any, begin: int, schemas: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        pa = require_pyarrow()
        rows: dict[str, Sequence[Any]] = {}
        reasons: dict[int, str] = {}
        for each in self.inputs:
            rows[each.name], wrong = each.read(
                table[each.column], self.max_bytes
            )
            reasons = {**wrong, **reasons}
        indices = [i for i in range(table.num_rows) if i not in reasons]
        outputs: dict[int, Any] = {}
        if indices:
            run = load(
                *(self.path, self.kind, self.digest, [self.signature]),
                self.threads,
            )[self.signature]
            for batch in self._batches(run, rows, indices):
                self._run_batch(run, rows, batch, outputs, reasons)
        kept = table.select(self.keep)
        kept = kept.cast(pa.schema(map(_without_views, kept.schema)))
        good, bad = sorted(outputs), sorted(reasons)
        columns = [*kept.take(pa.array(good, pa.int64())).columns]
        columns += (
            [
                each.column([outputs[index][each.name] for index in good])
                for each in self.outputs
            ]
            if good
            else [pa.array([], each.type) for each in self.outputs]
        )
        records = [
            pa.array([begin + index for index in bad], pa.int64()),
            pa.array([reasons[index] for index in bad], pa.string()),
            *kept.take(pa.array(bad, pa.int64())).columns,
        ]
        return (
            pa.table(columns, schema=schemas[0]),
            pa.table(records, schema=schemas[1]),
        )

    def _batches(
        self, run: Runner, rows: Rows, indices: Sequence[int]
    ) -> Iterator[list[int]]:
        """Yields batches, once it is known whether padding matters."""
        if self._matters is None:
            self._matters = self._padding_matters(run)
        most = self._batch or _MOST
        lengths = {
            index: tuple(len(rows[each.name][index]) for each in self._padded)
            for index in indices
        }
        if self._matters and any(e.kind == "text" for e in self._padded):
            most = 1  # their length in ids is unknown outside the model
        costs = [
            sum(each.cost(rows[each.name][index]) for each in self.inputs)
            for index in indices
        ]
        # An empty row may be all padding, of which a mask leaves nothing.
        groups = [
            lengths[index] if self._matters or 0 in lengths[index] else ()
            for index in indices
        ]
        for batch in pack(costs, groups, budget=self.budget, most=most):
            yield [indices[place] for place in batch]

    def _padding_matters(self, run: Runner) -> bool:
        """Returns whether rows of cases have other outputs alone, if known."""
        try:
            return not self._trials or not all(
                _are_alike(
                    {name: value[:1] for name, value in run(alone).items()},
                    run(case),
                )
                for alone, case in self._trials
            )
        except Exception as error:  # whatever the runtime raises
            self._check_memory(error)
            return True

    def _run_batch(
        self,
        run: Runner,
        rows: Rows,
        batch: Sequence[int],
        outputs: dict[int, Any],
        reasons: dict[int, str],
    ) -> None:
        """Adds the outputs of a batch, or why a row of it has none."""
        try:
            found = self._run_rows(run, rows, batch)
        except ExportError:
            raise
        except Exception as error:  # whatever the runtime raises
            if len(batch) == 1:
                self._check_memory(error)
                first = in_words(error).strip().partition("\n")[0][:500]
                reasons[batch[0]] = f"the model does not take it: {first}"
                return
            half = len(batch) // 2
            for part in (batch[:half], batch[half:]):
                self._run_batch(run, rows, part, outputs, reasons)
            return
        outputs.update(zip(batch, found, strict=True))

    def _check_memory(self, error: Exception) -> None:
        """Raises `ExportError` if memory is full: no row is the cause."""
        kinds = {each.__name__ for each in type(error).__mro__}
        words = str(error)
        if kinds & _NO_MEMORY or any(each in words for each in _IN_WORDS):
            raise ExportError(
                f"'{self.path}' ran out of memory: {in_words(error)}"
            ) from error

    def _run_rows(
        self, run: Runner, rows: Rows, batch: Sequence[int]
    ) -> list[dict[str, np.ndarray]]:
        count = self._batch or len(batch)
        given = {
            each.name: each.stack(
                [rows[each.name][index] for index in batch], count
            )
            for each in self.inputs
        }
        if self._counts_lengths:
            (name,) = self._sequences
            given[LENGTHS] = np.zeros((count,), "int32")
            real = [len(rows[name][index]) for index in batch]
            given[LENGTHS][: len(batch)] = real
        outputs = {}
        for name, value in run(given).items():
            if value.shape[:1] != (count,):
                raise ExportError(
                    f"Output '{name}' of '{self.path}' is of shape "
                    f"{value.shape} for {count} rows"
                )
            outputs[name] = value[: len(batch)]
        found = [
            {name: value[place] for name, value in outputs.items()}
            for place in range(len(batch))
        ]
        if len(batch) == 1 or not self._is_cut:
            return found
        for index, row in zip(batch, found, strict=True):
            if self._sequences:
                length = len(rows[self._sequences[0]][index])
            else:
                length = np.flatnonzero(row[MASK])[-1:].sum() + 1
            for name, axis in self._open:
                row[name] = row[name].take(range(max(1, length)), axis)
        return found


def _are_alike(alone: Outputs, batched: Outputs) -> bool:
    """Returns whether a row's outputs are its first of a batch, but rounded."""
    for name, value in alone.items():
        rows = batched[name]
        # Without what padding may have added to dynamic axes.
        first = rows[tuple(map(slice, value.shape))]
        if first.shape != value.shape:
            return False
        if value.dtype.kind != "f":
            if not np.array_equal(value, first):
                return False
            continue
        scale = float(np.abs(rows[np.isfinite(rows)]).max(initial=0))
        near = _ROUNDING * scale
        if not np.allclose(value, first, rtol=0, atol=near, equal_nan=True):
            return False
    return True


def _inputs(tensors: Mapping[str, Tensor], column: str | None) -> list[Input]:
    names = [*tensors]
    main = [name for name in names if name == column]
    main = main or [name for name in names if name != LENGTHS]
    if column is not None and len(main) != 1:
        raise ValueError(
            f"`column` must be the name of an input, as there are several: "
            f"{', '.join(names) or 'none'}. Received: column='{column}'"
        )
    of = dict.fromkeys(main, column) if column is not None else {}
    made = [
        Input.of(name, tensors[name], of.get(name) or name)
        for name in sorted(names, key=lambda name: name not in main)
        if name != LENGTHS or name == column
    ]
    sequences = [each for each in made if each.is_sequence]
    if LENGTHS in tensors and LENGTHS != column and len(sequences) != 1:
        made.append(Input.of(LENGTHS, tensors[LENGTHS], LENGTHS))
    if not made:
        raise ValueError("it has no inputs")
    return made


def _without_views(field: Any) -> Any:
    """Returns a field without a view, whose rows Arrow cannot take yet."""
    pa = require_pyarrow()
    if pa.types.is_string_view(field.type):
        return field.with_type(pa.large_string())
    if pa.types.is_binary_view(field.type):
        return field.with_type(pa.large_binary())
    return field
