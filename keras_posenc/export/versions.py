"""The versions of an exported model, and whether its files stay the same."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.regular_files import entries
from keras_posenc.publish import as_path, hidden, publish, remove, writing_to

MAX_VERSION = 2**63 - 1


def publish_version(
    staged: Path,
    base_path: Path,
    version: int | None,
    keep: int | None = None,
    step: Callable[[str], object] = str,
) -> Path:
    """Renames a staged folder to a new version, None for the next free one.

    With `keep`, older versions are removed, except the one that was the
    highest until now: a server uses it until it has loaded the next.
    """
    while True:
        earlier = versions(base_path)
        number = next_version(base_path) if version is None else version
        target = base_path / str(number)
        try:
            check_free(base_path, number)
            publish(staged, target)
            break
        except OSError:  # another export may have taken the number meanwhile
            if version is None and target.exists():
                continue
            check_free(base_path, number)
            with writing_to(base_path):
                raise
    if keep is not None:
        kept = {number, *sorted({number, *earlier})[-keep:], *earlier[-1:]}
        for old in sorted({*earlier} - kept):
            step(f"Removing version {old}")
            _remove_version(base_path, old)
    return target


def _remove_version(base_path: Path, version: int) -> None:
    """Removes it in one step, so that no server sees half of it."""
    for path in base_path.iterdir():
        if re.fullmatch("[0-9]+", path.name) and int(path.name) == version:
            unseen = hidden(base_path)
            try:
                path.rename(unseen)
            except OSError:  # another export removes it, or we may not
                continue
            remove(unseen)


def check_base(base_path: Path) -> None:
    """Raises `ValueError` for a path that cannot be a folder of versions."""
    check_no_pattern(base_path)
    path = base_path.absolute()
    for folder in (path, *path.parents):
        # Methods of Path raise for too long names.
        if os.path.exists(folder / "saved_model.pb"):
            is_version = re.fullmatch("[0-9]+", folder.name)
            given = f"'{folder.parent}'" if is_version else "another folder"
            raise ValueError(
                "`base_path` must be the folder of a model's versions, and "
                f"'{folder}' is a SavedModel itself: give {given}"
            )


def check_no_pattern(folder: Path) -> None:
    """Raises `ValueError` for a path at which TensorFlow loads nothing."""
    path = folder.resolve().as_posix()
    if re.search(r"\\|\[[^/]*\]", path):
        raise ValueError(
            "TensorFlow reads brackets and backslashes in the path of a "
            "SavedModel as a pattern, and does not find its weights. Rename "
            f"the folder: '{path}'"
        )


def check_version(version: Any) -> int:
    """Returns a version number; raises `ValueError` for anything else."""
    number = as_integer(version)
    if number is None or not 0 < number <= MAX_VERSION:
        raise ValueError(
            "`version` must be an integer from 1 to 2**63 - 1, or None. "
            f"Received: version={version!r}"
        )
    return number


def check_keep(keep: Any) -> None:
    """Raises `ValueError` unless it is a number of versions, or None."""
    if keep is not None and (as_integer(keep) or 0) < 1:
        raise ValueError(
            "`keep` must be an integer above 0, or None for all. "
            f"Received: keep={keep!r}"
        )


def next_version(base_path: Path) -> int:
    """Returns one more than the highest version."""
    version = max(versions(base_path), default=0) + 1
    if version > MAX_VERSION:
        raise ValueError(
            f"'{base_path}' has the highest version there can be, {MAX_VERSION}"
        )
    return version


def versions(base_path: Path) -> list[int]:
    """Returns the numbers of the versions in a folder, sorted."""
    if not os.path.isdir(base_path):
        return []
    # As servers read version numbers: ASCII digits, 64 bits.
    names = (path.name for path in base_path.iterdir())
    numbers = {int(x) for x in names if re.fullmatch("[0-9]+", x)}
    return sorted(number for number in numbers if number <= MAX_VERSION)


def check_free(base_path: Path, version: int) -> None:
    """Raises `FileExistsError` if a version exists already."""
    if version in versions(base_path) or os.path.exists(
        base_path / str(version)
    ):
        raise FileExistsError(
            f"Version {version} exists in '{base_path}', and a published "
            "version is never changed. Leave `version` out for the next free "
            "one"
        )


def stamp(exported: Path) -> dict[str, tuple[int, ...]]:
    """Returns size, times and inode of each file of a model, by its path."""
    found: dict[str, tuple[int, ...]] = {}
    paths: Iterable[os.DirEntry[str] | Path] = [exported]
    if os.path.isdir(exported):
        paths = entries(exported)
    # What cannot be read, and too many files, `inspect.py` refuses.
    with contextlib.suppress(OSError, ValueError):
        for path in paths:
            state = os.stat(path)
            found[os.fspath(path)] = (
                *(state.st_dev, state.st_ino, state.st_size),
                *(state.st_mtime_ns, state.st_ctime_ns),
            )
    return found


def check_unchanged(exported: Path, before: Mapping[str, Any]) -> None:
    """Raises `ExportVerificationError` if a model's stamp is not `before`."""
    if changed := unlike(before, stamp(exported)):
        raise ExportVerificationError(
            f"'{exported}' was changed while it was verified "
            f"({', '.join(changed[:3])}). Verify it again while no process "
            "writes to it"
        )


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the names whose values differ, sorted."""
    return sorted(x for x in {*one, *other} if one.get(x) != other.get(x))


def check_file(value: Any, suffix: str) -> Path:
    """Returns a path; raises `ValueError` if it has another ending."""
    path = as_path("path", value)
    if path.suffix != suffix:
        raise ValueError(
            f"`path` must end in '{suffix}'. Received: path='{path}'"
        )
    if os.path.isdir(path):  # Path.is_dir raises for too long names
        raise ValueError(f"`path` must be a file, and '{path}' is a folder")
    return path
