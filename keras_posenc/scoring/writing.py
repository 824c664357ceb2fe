"""One file of outputs for each input file, complete or not at all."""

import contextlib
import json
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.publish import publish, staging_in, writing_to
from keras_posenc.scoring.arrow import require_pyarrow
from keras_posenc.scoring.fragments import Fragment
from keras_posenc.scoring.reading import Part, read
from keras_posenc.scoring.scorer import POSITION, REASON, Scorer

_KEY = b"keras_posenc.scoring"


class FragmentError(Exception):
    """A file cannot be scored, but others may."""


def run_of(scorer: Scorer) -> dict[str, Any]:
    """Returns what all files of a run have in common, ready for JSON."""
    return {
        "model": scorer.digest,
        "signature": scorer.signature,
        "columns": [each.column for each in scorer.inputs],
        "keep": scorer.keep,
        "max_bytes": scorer.max_bytes,
    }


def written(fragment: Fragment, out: Path) -> dict[str, Any] | None:
    """Returns the record in the outputs of a fragment; None without outputs.

    None also if it had bad rows and their file is missing.

    Raises:
        ValueError: The file there is not an output.
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
            f"'{path}' exists, and is not a file of outputs. Give another "
            "folder, or move it away"
        ) from error


def rows_of(fragment: Fragment, scorer: Scorer) -> Iterator[Part]:
    """Yields the rows of a file as `read` does."""
    return read(
        fragment.path,
        fragment.format,
        inputs=scorer.inputs,
        keep=scorer.keep,
        window=scorer.window,
    )


def first_reason(path: Path) -> str:
    """Returns why the first row of a file of bad rows has no outputs."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(batch_size=1, columns=[REASON]))
    return str(batch[REASON][0])


def score_fragment(
    scorer: Scorer,
    fragment: Fragment,
    out: Path,
    tell: Callable[[int, int], object] = lambda rows, done: None,
) -> tuple[int, int]:
    """Writes the outputs for a file, and its bad rows; returns their numbers.

    Both files are written under other names and renamed, the bad rows first:
    if the file of good rows exists, both are complete. Only one window of rows
    and its outputs is in memory, however large the file is. `tell` is called
    with how many rows, and bytes, were read so far.

    Raises:
        FragmentError: The file cannot be read, or has changed meanwhile.
        ExportError: The exported file is missing, or the outputs cannot be
            written.
    """
    pa = require_pyarrow()
    import pyarrow.parquet as pq

    with (
        staging_in(out) as staged,
        writing_to(out),  # closing a file writes too, even after an error
        contextlib.ExitStack() as stack,
    ):
        staged.mkdir()
        before = _of_fragment(fragment.state)
        parts = rows_of(fragment, scorer)
        writers: list[Any] = []
        counts = [0, 0]
        rows = 0
        while part := _of_fragment(lambda: next(parts, None)):
            good, bad = _of_fragment(lambda: scorer(part.table))
            places = bad[POSITION].to_pylist()
            # The reader's reason for a row is better than "is null".
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
                    stack.enter_context(pq.ParquetWriter(path, table.schema))
                    for path, table in (
                        (staged / "good", good),
                        (staged / "bad", bad),
                    )
                ]
            for writer, table in zip(writers, (good, bad), strict=True):
                if table.num_rows:
                    writer.write_table(table)
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
            writer.add_key_value_metadata({_KEY: json.dumps(record).encode()})
        stack.close()
        if _of_fragment(fragment.state) != before:
            raise FragmentError("it was changed while it was read")
        _publish(staged, fragment, out, bool(counts[1]))
    return counts[0], counts[1]


def _publish(staged: Path, fragment: Fragment, out: Path, is_bad: bool) -> None:
    good, bad = out / fragment.good, out / fragment.bad
    # Folders stay until the run ends: other processes write to them.
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


def _of_fragment(work: Callable[[], Any]) -> Any:
    """Does work whose errors concern only this file."""
    try:
        return work()
    except (ExportError, ImportError):
        raise
    except Exception as error:  # whatever a reader raises
        if isinstance(error, FileNotFoundError):
            raise FragmentError("it does not exist any more") from error
        reason = str(error).strip().partition("\n")[0]
        raise FragmentError(f"{reason or type(error).__name__}") from error
