"""The versions of a model, each a folder with an integer for its name.

Servers take the highest, and look again every second.
"""

import numbers
import re
import shutil
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.report import Artifact
from keras_posenc.artifacts.staging import (
    as_path,
    hidden,
    publish,
    remove,
    staging_beside,
    writing_to,
)

MAX_VERSION = 2**63 - 1


def rollback(base_path: str | Path, version: int) -> Artifact:
    """Publishes an older version of a model once more, as the newest.

    A server takes the highest number, so the older version is copied, and the
    copy gets the next free one. The versions between stay as they are.

    Args:
        base_path: The folder of all versions of the model.
        version: The number of the version to go back to.

    Returns:
        An `Artifact`: its `path` is the new version folder, and its `report`
        None, since nothing was verified again.

    Raises:
        ValueError: There is no such version, or it is the newest.
        ExportError: The folder cannot be written to.

    Example:
    >>> import pathlib, tempfile
    >>> import keras_posenc as kp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in "12":
    ...         path = pathlib.Path(folder, number)
    ...         path.mkdir()
    ...         _ = (path / "saved_model.pb").write_text(f"model {number}")
    ...     artifact = kp.rollback(folder, 1)
    ...     artifact.path.name, (artifact.path / "saved_model.pb").read_text()
    ('3', 'model 1')
    """
    base_path = as_path("base_path", base_path)
    version = check_version(version)
    source = base_path / str(version)
    present = versions(base_path)
    if not base_path.is_dir():
        raise ValueError(
            "`base_path` must be the folder of a model's versions. "
            f"Received: base_path='{base_path}', which is no folder"
        )
    if not (source / "saved_model.pb").is_file():
        raise ValueError(
            f"`version` must be one that '{base_path}' has "
            f"({', '.join(map(str, present)) or 'it has none'}). "
            f"Received: version={version}"
        )
    if version == present[-1]:
        raise ValueError(
            f"Version {version} is the newest in '{base_path}': there is "
            "nothing to go back from"
        )
    with staging_beside(base_path) as staged:
        with writing_to(base_path):
            try:
                shutil.copytree(source, staged)
            except shutil.Error as error:  # of each file that it met
                raise OSError(error.args[0][0][-1]) from error
        return Artifact(publish_version(staged, base_path, None), None)


def publish_version(
    staged: Path,
    base_path: Path,
    version: int | None,
    keep: int | None = None,
) -> Path:
    """Renames a folder to a version that does not exist yet.

    Args:
        staged: The folder, on the same file system.
        base_path: The folder of all versions.
        version: Its number, or None for the next free one.
        keep: How many versions to keep, or None for all: the highest, this one
            included. The one that was the highest until now stays too, since a
            server answers from it until it has loaded the next.

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


def check_version(version: Any, or_none: str = "") -> int:
    """Returns a version number; raises `ValueError` for what is none."""
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
    """Raises `ValueError` for what is no number of versions to keep."""
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
    if not base_path.is_dir():
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
    if version in versions(base_path) or (base_path / str(version)).exists():
        raise FileExistsError(
            f"Version {version} exists in '{base_path}', and a published "
            "version is never changed. Leave `version` out for the next free "
            "one"
        )
