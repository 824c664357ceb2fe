"""The versions of a model, each a folder with an integer for its name.

Servers take the highest, and look again every second.
"""

import numbers
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.staging import (
    hidden,
    publish,
    remove,
    writing_to,
)

MAX_VERSION = 2**63 - 1


def publish_version(
    staged: Path,
    base_path: Path,
    version: int | None,
    keep: int | None = None,
    step: Callable[[str], object] = str,
) -> Path:
    """Renames a folder to a version that does not exist yet.

    Args:
        staged: The folder, on the same file system.
        base_path: The folder of all versions.
        version: Its number, or None for the next free one.
        keep: How many versions to keep, or None for all: the highest, this one
            included. The one that was the highest until now stays too, since a
            server answers from it until it has loaded the next.
        step: Is told which versions go.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: The version exists.
    """
    while True:
        earlier = versions(base_path)
        number = next_version(base_path) if version is None else version
        target = base_path / str(number)
        try:
            check_free(base_path, number)
            publish(staged, target)
        except OSError:
            # Another exporter took the number since we looked.
            if not target.exists():
                with writing_to(base_path):
                    raise
            if version is None:
                continue
            check_free(base_path, number)
            raise
        break
    if keep is not None:
        kept = {number, *sorted({number, *earlier})[-keep:], *earlier[-1:]}
        for old in earlier:
            if old not in kept:
                step(f"Removing version {old}")
                _remove_version(base_path, old)
    return target


def _remove_version(base_path: Path, version: int) -> None:
    """Takes a version away in one step, so that no server sees half of it."""
    for path in base_path.iterdir():
        if re.fullmatch("[0-9]+", path.name) and int(path.name) == version:
            unseen = hidden(base_path)
            try:
                path.rename(unseen)
            except OSError:  # another exporter removes it, or it is not ours
                continue
            remove(unseen)


def check_base(base_path: Path) -> None:
    """Raises `ValueError` for what cannot be a folder of versions.

    Such as a version's own folder, or one inside of it.
    """
    check_no_pattern(base_path)
    path = base_path.absolute()
    for folder in (path, *path.parents):
        # Here and below unlike Path's, for any name.
        if os.path.exists(folder / "saved_model.pb"):
            within = "is" if folder == path else "is in"
            raise ValueError(
                "`base_path` must be the folder of a model's versions, and "
                f"'{base_path}' {within} one of them: give '{folder.parent}'"
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


def check_version(version: Any, or_none: str = "") -> int:
    """Returns a version number; raises `ValueError` for anything else."""
    if (
        isinstance(version, bool)
        or not isinstance(version, numbers.Integral)
        or not 0 < int(version) <= MAX_VERSION
    ):
        raise ValueError(
            f"`version` must be an integer from 1 to 2**63 - 1{or_none}. "
            f"Received: version={version!r}"
        )
    return int(version)


def check_keep(keep: Any) -> None:
    """Raises `ValueError` unless it is a number of versions, or None."""
    if keep is not None and (
        isinstance(keep, bool)
        or not isinstance(keep, numbers.Integral)
        or int(keep) < 1
    ):
        raise ValueError(
            "`keep` must be an integer above 0, or None for all. "
            f"Received: keep={keep!r}"
        )


def next_version(base_path: Path) -> int:
    """One more than the highest version there is.

    Raises:
        ValueError: No version can be higher.
    """
    version = max(versions(base_path), default=0) + 1
    if version > MAX_VERSION:
        raise ValueError(
            f"'{base_path}' has the highest version there can be, {MAX_VERSION}"
        )
    return version


def versions(base_path: Path) -> list[int]:
    """The numbers of the versions in a folder, sorted."""
    if not os.path.isdir(base_path):
        return []
    # As servers read them: in ASCII digits, as 64 bits.
    return sorted(
        {
            int(path.name)
            for path in base_path.iterdir()
            if re.fullmatch("[0-9]+", path.name)
            and int(path.name) <= MAX_VERSION
        }
    )


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
