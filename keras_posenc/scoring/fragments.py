"""The input files of a run, and the output files for each."""

import dataclasses
import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    """An input file.

    Attributes:
        path: Its path.
        name: Its name among the outputs, with slashes.
        format: `"parquet"`, `"csv"` or `"jsonl"`.
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
    """Returns the files that inputs name, and how many have no known format.

    Inputs are files, folders and patterns. The name of a file is its path in
    its folder, or its path from where a pattern starts. Files in the folder of
    outputs are left out, and so are hidden files and folders.

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
