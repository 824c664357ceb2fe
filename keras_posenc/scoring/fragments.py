"""The files of a run: what is read, and what is written for each."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path

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
        path: Where it is.
        name: What it is called among the outputs, by slashes.
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
        """That of its bad rows, if there are any."""
        return f"{self.name.removesuffix('.parquet')}.bad.parquet"

    def state(self) -> dict[str, int]:
        """What tells whether it is still the same."""
        found = self.path.stat()
        return {"size": found.st_size, "mtime_ns": found.st_mtime_ns}


def find_fragments(inputs: Iterable[str | Path], out: Path) -> list[Fragment]:
    """The files that inputs name: files, folders and patterns.

    Files of a folder are called by their path in it, those of a pattern by
    their path from where it begins to be one. Hidden ones, and what is in the
    folder of outputs, are left out.

    Raises:
        ValueError: There is none, or one of another format, or two of a name.
    """
    found: dict[Path, Fragment] = {}
    for each in inputs:
        for path, root in _files(os.path.expanduser(each)):
            if path.resolve().is_relative_to(out.resolve()):
                continue
            name = path.relative_to(root).as_posix()
            format = format_of(path)
            if format is None:
                raise ValueError(
                    f"'{path}' must be a .parquet, .csv, .jsonl or .tfrecord "
                    "file"
                )
            found.setdefault(path.resolve(), Fragment(path, name, format))
    if not found:
        raise ValueError("there is no file to score")
    written: dict[str, Path] = {}
    for fragment in found.values():
        for name in (fragment.good, fragment.bad):
            if other := written.get(name):
                raise ValueError(
                    f"'{other}' and '{fragment.path}' would both be written to "
                    f"'{name}': score them into two folders"
                )
            written[name] = fragment.path
    return sorted(found.values(), key=lambda fragment: fragment.name)


def format_of(path: Path) -> str | None:
    """The format that the name of a file says."""
    for format, pattern in _FORMATS.items():
        if re.search(f"{pattern}$", path.name, re.IGNORECASE):
            return format
    return None


def _files(given: str) -> list[tuple[Path, Path]]:
    """Files, each with the folder that it is called from."""
    if os.path.isdir(given):
        paths = sorted(Path(given).rglob("*"))
        return [
            (path, Path(given))
            for path in paths
            if path.is_file()
            and format_of(path)
            and not any(
                part.startswith((".", "_"))
                for part in path.relative_to(given).parts
            )
        ]
    if os.path.exists(given) or not glob.has_magic(given):
        if not os.path.isfile(given):
            raise ValueError(f"'{given}' does not exist")
        return [(Path(given), Path(given).parent)]
    matches = [
        Path(path)
        for path in sorted(glob.glob(given, recursive=True))
        if os.path.isfile(path)
    ]
    if not matches:
        raise ValueError(f"no file matches '{given}'")
    parts = Path(given).parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return [(path, Path(*parts[:plain])) for path in matches]
