"""The files of a run: inputs, and for each one of outputs, complete or not."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from keras_posenc.export.errors import ExportError
from keras_posenc.publish import publish, staging_in, writing_to
from keras_posenc.scoring.columns import require_pyarrow
from keras_posenc.scoring.reading import read
from keras_posenc.scoring.scorer import POSITION, Scorer

# The folder of bad rows: readers of a folder skip names that start like this.
BAD = "_bad"
_HIDDEN = (".", "_")
_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
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


def find_fragments(inputs: Iterable[str | Path], out: Path) -> list[Fragment]:
    """Returns the files that inputs name, and those of folders.

    The name of a file is its path in its folder. Of a folder, hidden files,
    other formats and the folder of outputs are left out.
    """
    found: dict[Path, Fragment] = {}
    outputs = out.resolve()
    for each in inputs:
        given = Path(os.path.expanduser(each))
        if given.resolve().is_relative_to(outputs):
            raise ValueError(
                f"`out` must be another folder than the inputs'. Received: "
                f"out='{out}', and '{given}' as an input"
            )
        if not given.exists():
            raise ValueError(f"'{given}' does not exist")
        root, paths = given.parent, [given]
        if given.is_dir():
            root, paths = given, sorted(filter(Path.is_file, given.rglob("*")))
        for path in paths:
            name, real = path.relative_to(root), path.resolve()
            format = _FORMATS.get(path.suffix.lower())
            is_hidden = any(part.startswith(_HIDDEN) for part in name.parts)
            if format and not is_hidden and outputs not in real.parents:
                fragment = Fragment(path, name.as_posix(), format)
                found.setdefault(real, fragment)
            elif path == given:
                raise ValueError(
                    f"'{path}' must be a .parquet, .csv or .jsonl file, whose "
                    "name does not start with '.' or '_'"
                )
    if not found:
        raise ValueError("there is no file to score: .parquet, .csv or .jsonl")
    written: dict[str, Path] = {}
    for fragment in found.values():
        if other := written.get(fragment.good):
            raise ValueError(
                f"'{other}' and '{fragment.path}' would both be written to "
                f"'{fragment.good}': score them into two folders"
            )
        written[fragment.good] = fragment.path
    return sorted(found.values(), key=lambda fragment: fragment.name)


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


def score_fragment(
    scorer: Scorer,
    fragment: Fragment,
    out: Path,
    tell: Callable[[int], object] = lambda rows: None,
) -> tuple[int, int]:
    """Writes the outputs for a file, and its bad rows; returns their numbers.

    Both files are written under other names and renamed, the bad rows first:
    if the file of good rows exists, both are complete. Only one window of rows
    and its outputs is in memory, however large the file is.
    """
    require_pyarrow()
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with (
        staging_in(out) as staged,
        writing_to(out),  # closing a file writes too, even after an error
        contextlib.ExitStack() as stack,
    ):
        staged.mkdir()
        with _of_fragment():
            before = fragment.state()
        tables = read(
            fragment.path,
            fragment.format,
            inputs=scorer.inputs,
            keep=scorer.keep,
            window=scorer.window,
        )
        writers: list[Any] = []
        counts = [0, 0]
        while True:
            with _of_fragment():
                table = next(tables, None)
                if table is None:
                    break
                good, bad = scorer(table)
            places = pc.add(bad[POSITION], sum(counts))
            bad = bad.set_column(0, POSITION, places)
            if not writers:
                writers = [
                    stack.enter_context(pq.ParquetWriter(path, found.schema))
                    for path, found in (
                        (staged / "good", good),
                        (staged / "bad", bad),
                    )
                ]
            for i, found in enumerate((good, bad)):
                counts[i] += found.num_rows
                if found.num_rows:
                    writers[i].write_table(found)
            tell(sum(counts))
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
        with _of_fragment():
            after = fragment.state()
        if after != before:
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


@contextlib.contextmanager
def _of_fragment() -> Iterator[None]:
    """Raises `FragmentError` for errors that concern only this file."""
    try:
        yield
    except (ExportError, ImportError):
        raise
    except Exception as error:  # whatever a reader raises
        if isinstance(error, FileNotFoundError):
            raise FragmentError("it does not exist any more") from error
        reason = str(error).strip().partition("\n")[0]
        raise FragmentError(f"{reason or type(error).__name__}") from error
