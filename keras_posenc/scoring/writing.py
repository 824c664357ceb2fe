"""One file of answers for each input file, whole or not at all."""

import contextlib
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.export.publish import publish, staging_beside, writing_to
from keras_posenc.scoring.arrow import require_pyarrow
from keras_posenc.scoring.fragments import Fragment
from keras_posenc.scoring.reading import read
from keras_posenc.scoring.scorer import POSITION, REASON, Scorer

_KEY = b"keras_posenc.scoring"
_GROUP = 2**22  # bytes of bad rows that are gathered into a group


class FragmentError(Exception):
    """A file that cannot be scored, while others can."""


def run_of(scorer: Scorer) -> dict[str, Any]:
    """What all files of a run have in common, as what JSON can hold."""
    return {
        "artifact": scorer.digest,
        "signature": scorer.signature,
        "columns": [each.column for each in scorer.inputs],
        "keep": scorer.keep,
        "max_bytes": scorer.max_bytes,
    }


def written(fragment: Fragment, out: Path) -> dict[str, Any] | None:
    """What was noted of a fragment when it was written; None if it was not.

    It was not, either, if it had bad rows and their file is gone.

    Raises:
        ValueError: The file there is another's.
    """
    require_pyarrow()
    import pyarrow.parquet as pq

    path = out / fragment.good
    if not path.exists():
        return None
    try:
        record = json.loads(pq.read_metadata(path).metadata[_KEY])
        is_whole = not record["bad"] or (out / fragment.bad).exists()
        return record if is_whole else None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"'{path}' is there, and is no file of answers. Give another "
            "folder, or take it away"
        ) from error


def score_fragment(
    scorer: Scorer,
    fragment: Fragment,
    out: Path,
    tell: Callable[[int, int], object] = lambda rows, done: None,
) -> tuple[int, int]:
    """Writes the answers to a file, and its bad rows.

    Both are written beside their places, and renamed: the bad rows first, so
    that a file of good rows is the sign that all is there. Memory is that of
    one window of rows and its answers, however large the file is.

    Args:
        scorer: What answers.
        fragment: The file.
        out: The folder of outputs.
        tell: Is told how many rows were read, and how many bytes, so far.

    Returns:
        How many rows are good, and how many bad.

    Raises:
        FragmentError: The file cannot be read, or is another one meanwhile.
        ExportError: The artifact is gone, or the outputs cannot be written.
    """
    pa = require_pyarrow()
    with (
        staging_beside(out) as staged,
        writing_to(out),  # closing a file writes, too, whatever went wrong
        contextlib.ExitStack() as stack,
    ):
        staged.mkdir()
        before = _of_fragment(fragment, fragment.state)
        parts = read(
            fragment.path,
            fragment.format,
            inputs=scorer.inputs,
            keep=scorer.keep,
            window=scorer.window,
        )
        writers: list[_Writer] = []
        counts = [0, 0]
        rows = 0
        while part := _of_fragment(fragment, lambda: next(parts, None)):
            good, bad = _of_fragment(fragment, lambda: scorer(part.table))
            places = bad[POSITION].to_pylist()
            # What the reader says of a row says more than that it is null.
            reasons = [
                part.wrong.get(place, reason)
                for place, reason in zip(
                    places, bad[REASON].to_pylist(), strict=True
                )
            ]
            columns = [
                pa.array([rows + place for place in places], pa.int64()),
                pa.array(reasons, pa.string()),
                *bad.columns[2:],
            ]
            bad = pa.table(columns, schema=bad.schema)
            if not writers:
                writers = [
                    _Writer(staged / "good", good.schema, stack),
                    _Writer(staged / "bad", bad.schema, stack, _GROUP),
                ]
            for writer, table in zip(writers, (good, bad), strict=True):
                writer.write(table)
            rows += part.table.num_rows
            counts[0] += good.num_rows
            counts[1] += bad.num_rows
            tell(rows, part.done)
        record = {
            "input": before,
            "good": counts[0],
            "bad": counts[1],
            "version": metadata.version("keras-posenc"),
            **run_of(scorer),
        }
        for writer in writers:
            writer.end(record)
        stack.close()
        if _of_fragment(fragment, fragment.state) != before:
            raise FragmentError("it was changed while it was read")
        _publish(staged, fragment, out, bool(counts[1]))
    return counts[0], counts[1]


def _publish(staged: Path, fragment: Fragment, out: Path, is_bad: bool) -> None:
    good, bad = out / fragment.good, out / fragment.bad
    # Folders stay until a run has ended, as other processes write to them.
    for path in (good, bad) if is_bad else (good,):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise ExportError(
                f"Cannot write to '{path.parent}': it is a file"
            ) from error
    good.unlink(missing_ok=True)
    if is_bad:
        publish(staged / "bad", bad)
    else:
        bad.unlink(missing_ok=True)
    publish(staged / "good", good)


class _Writer:
    """A Parquet file whose groups of rows are of some size at least."""

    def __init__(
        self,
        path: Path,
        schema: Any,
        stack: contextlib.ExitStack,
        least: int = 0,
    ) -> None:
        import pyarrow.parquet as pq

        self._file = stack.enter_context(pq.ParquetWriter(path, schema))
        self._least = least
        self._waiting: list[Any] = []

    def write(self, table: Any) -> None:
        """Adds rows, if there are any."""
        if table.num_rows:
            self._waiting.append(table)
        if sum(each.nbytes for each in self._waiting) >= self._least:
            self._flush()

    def end(self, record: dict[str, Any]) -> None:
        """Writes what is left, and what is noted of the file."""
        self._flush()
        self._file.add_key_value_metadata({_KEY: json.dumps(record).encode()})

    def _flush(self) -> None:
        if self._waiting:
            self._file.write_table(
                require_pyarrow().concat_tables(self._waiting)
            )
            self._waiting = []


def _of_fragment(fragment: Fragment, work: Callable[[], Any]) -> Any:
    """Does what may fail for this file alone."""
    try:
        return work()
    except (ExportError, ImportError):
        raise
    except Exception as error:  # whatever a reader raises
        if isinstance(error, FileNotFoundError):
            raise FragmentError("it does not exist any more") from error
        reason = str(error).strip().partition("\n")[0]
        raise FragmentError(f"{reason or type(error).__name__}") from error
