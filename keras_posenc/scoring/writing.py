"""The files of a run: inputs, and for each one of outputs, complete or not."""

import contextlib
import dataclasses
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.publish import publish, staging_in, writing_to
from keras_posenc.scoring.columns import require_pyarrow
from keras_posenc.scoring.reading import Part, read
from keras_posenc.scoring.scorer import POSITION, REASON, Scorer

# The folder of bad rows: readers of a folder skip names that start like this.
BAD = "_bad"
_HIDDEN = (".", "_")
_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
}


@dataclasses.dataclass(frozen=True)
class Fragment:
    """An input file, with its name among the outputs, and its format."""

    path: Path
    name: str
    format: str

    @property
    def good(self) -> str:
        """The file of its good rows, in the folder of outputs."""
        return f"{self.name.removesuffix('.parquet')}.parquet"

    @property
    def bad(self) -> str:
        """The file of its bad rows, if there are any."""
        return f"{BAD}/{self.good}"

    def state(self) -> dict[str, Any]:
        """Returns what shows whether the file has changed."""
        found = self.path.stat()
        return {
            "path": str(self.path.resolve()),
            "size": found.st_size,
            "mtime_ns": found.st_mtime_ns,
        }


def find_fragments(
    inputs: Iterable[str | Path], out: Path
) -> tuple[list[Fragment], int]:
    """Returns the files that inputs name, and how many have no known format.

    The name of a file is its path in its folder, or its path from where a
    pattern starts. Files in the folder of outputs and hidden ones are left out.
    """
    found: dict[Path, Fragment] = {}
    left: set[Path] = set()
    outputs = out.resolve()
    for each in inputs:
        given = os.path.expanduser(each)
        is_one = os.path.exists(given) or not glob.has_magic(given)
        if Path(given).resolve().is_relative_to(outputs) and is_one:
            raise ValueError(
                f"`out` must be another folder than the inputs'. Received: "
                f"out='{out}', and '{given}' as an input"
            )
        for path, root in _files(given):
            real = path.resolve()
            if real.is_relative_to(outputs):
                continue
            name = path.relative_to(root).as_posix()
            suffix = path.suffix.lower()
            format = _FORMATS.get(suffix)
            # In a folder, `.json` may be anything.
            if os.path.isdir(given) and (not format or suffix == ".json"):
                left.add(real)
                continue
            if format is None:
                raise ValueError(
                    f"'{path}' must be a .parquet, .csv or .jsonl file"
                )
            if name.startswith(_HIDDEN):
                raise ValueError(
                    f"'{path}' must not start with '{name[0]}': its output "
                    "would, too, and readers would skip it"
                )
            found.setdefault(real, Fragment(path, name, format))
    if not found:
        raise ValueError(
            "there is no file to score"
            + f", but {len(left)} of other formats" * bool(left)
        )
    written: dict[str, Path] = {}
    for fragment in found.values():
        if other := written.get(fragment.good):
            raise ValueError(
                f"'{other}' and '{fragment.path}' would both be written to "
                f"'{fragment.good}': score them into two folders"
            )
        written[fragment.good] = fragment.path
    fragments = sorted(found.values(), key=lambda fragment: fragment.name)
    return fragments, len(left - {*found})


def _files(given: str) -> list[tuple[Path, Path]]:
    """Returns files, each with the folder that its name is relative to."""
    pattern, root = given, Path(given)
    if os.path.isdir(given):
        pattern = os.path.join(glob.escape(given), "**", "*")
    elif os.path.exists(given) or not glob.has_magic(given):
        if not os.path.isfile(given):
            raise ValueError(f"'{given}' does not exist")
        return [(root, root.parent)]
    else:
        plain = next(i for i, x in enumerate(root.parts) if glob.has_magic(x))
        if ".." in root.parts[plain:]:
            raise ValueError(f"'{given}' must not have '..' after a pattern")
        root = Path(*root.parts[:plain])
    shown = [
        path
        for path in map(Path, glob.glob(pattern, recursive=True))
        if path.is_file()
        and not any(
            part.startswith(_HIDDEN) for part in path.relative_to(root).parts
        )
    ]
    if not shown and pattern == given:
        hint = "; glob.escape writes a name that has a bracket" * ("[" in given)
        raise ValueError(f"no file matches '{given}'{hint}")
    # Of a file that links lead to as well, the shortest name.
    shown.sort(key=lambda path: (len(path.parts), path))
    return [(path, root) for path in shown]


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
    """Returns the record in the outputs of a fragment, if all are there."""
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
    and its outputs is in memory, however large the file is.
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
