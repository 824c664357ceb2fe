"""The input files of a run, and the output files for each."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# The folder of bad rows: readers of a folder skip names that start like this.
BAD = "_bad"
_HIDDEN = (".", "_")
_FORMATS = {
    "parquet": r"\.parquet",
    "csv": r"\.csv",
    "jsonl": r"\.(jsonl|ndjson|json)",
    "tfrecord": r"\.tfrecords?(-\d+-of-\d+)?",
}


@dataclasses.dataclass(frozen=True)
class Fragment:
    """An input file.

    Attributes:
        path: Its path.
        name: Its name among the outputs, with slashes.
        format: `"parquet"`, `"csv"`, `"jsonl"` or `"tfrecord"`.
    """

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
    """Finds the files that inputs name: files, folders and patterns.

    The name of a file is its path in its folder, or its path from where a
    pattern starts. Files in the folder of outputs are left out, and so are
    hidden files and folders.

    Returns:
        The files, and how many others there are in the folders, whose names
        have no known format.

    Raises:
        ValueError: There is none, one has another format, two have the same
            name, or one is itself an output.
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
            format = format_of(path)
            if os.path.isdir(given) and not _is_table(path):
                left.add(real)
                continue
            if format is None:
                raise ValueError(
                    f"'{path}' must be a .parquet, .csv, .jsonl or .tfrecord "
                    "file"
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


def format_of(path: Path) -> str | None:
    """Returns the format that the name of a file has, or None."""
    for format, pattern in _FORMATS.items():
        if re.search(f"{pattern}$", path.name, re.IGNORECASE):
            return format
    return None


def _is_table(path: Path) -> bool:
    """Returns whether a file of a folder is scored; `.json` is ambiguous."""
    return format_of(path) is not None and path.suffix.lower() != ".json"


def _files(given: str) -> list[tuple[Path, Path]]:
    """Returns files, each with the folder that its name is relative to."""
    if os.path.isdir(given):
        return [(path, Path(given)) for path in sorted(_of_folder(given))]
    if os.path.exists(given) or not glob.has_magic(given):
        if not os.path.isfile(given):
            raise ValueError(f"'{given}' does not exist")
        return [(Path(given), Path(given).parent)]
    parts = Path(given).parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:plain])
    if ".." in parts[plain:]:
        raise ValueError(f"'{given}' must not have '..' after a pattern")
    matches = [
        Path(path)
        for path in sorted(glob.glob(given, recursive=True))
        if os.path.isfile(path)
    ]
    shown = [
        path
        for path in matches
        if not any(
            part.startswith(_HIDDEN) for part in path.relative_to(root).parts
        )
    ]
    if not shown:
        hint = "; glob.escape writes a name that has a bracket" * ("[" in given)
        raise ValueError(f"no file matches '{given}'{hint}")
    return [(path, root) for path in shown]


def _of_folder(folder: str) -> Iterator[Path]:
    """Yields its files, including those of linked folders, each folder once."""
    seen = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(parent)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [
            name for name in sorted(folders) if not name.startswith(_HIDDEN)
        ]
        for name in names:
            path = Path(parent, name)
            if not name.startswith(_HIDDEN) and path.is_file():
                yield path
