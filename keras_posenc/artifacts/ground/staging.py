"""Artifacts appear whole or not at all."""

import contextlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keras_posenc.artifacts.ground.errors import ExportError

_LEFTOVER = re.compile(r"\.[0-9a-f]{32}\.(partial|lock)")


def as_path(name: str, value: Any) -> Path:
    """Returns a path, from `~` on; raises `ValueError` for what is none."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return Path(os.path.expanduser(path))
    raise ValueError(
        f"`{name}` must be a path. Received: {name} of type "
        f"{type(value).__name__}"
    )


@contextlib.contextmanager
def staging_beside(folder: Path) -> Iterator[Path]:
    """A path in `folder`, for what is to be renamed there once it is whole.

    The name begins with a dot and is no integer, so that no server takes it
    for a version. Whatever was not renamed is removed, and so are the folders
    made for it. What a process left that was killed meanwhile is removed by
    the next one to stage here: each holds a lock as long as it lives.

    Args:
        folder: Where the artifact is to appear; made if need be.

    Yields:
        A path at which nothing exists yet.

    Raises:
        ExportError: The folder cannot be made.
    """
    staged = hidden(folder)
    lock = FileLock(staged.with_suffix(".lock"))
    made: list[Path] = []
    try:
        with writing_to(folder):
            _make_folders(folder, made)
            _sweep(folder)
            Path(lock.lock_file).touch()  # which fails where filelock waits
            lock.acquire()
        yield staged
    finally:
        remove(staged)
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        lock.release()
        for path in reversed(made):
            with contextlib.suppress(OSError):  # not empty: in use
                path.rmdir()


@contextlib.contextmanager
def working_folder() -> Iterator[Path]:
    """A folder of this process's own, that nobody else can read.

    It is removed in the end: by the next process to make one, if this one is
    killed.

    Raises:
        ExportError: It cannot be made.
    """
    parent = Path(tempfile.gettempdir())
    with staging_beside(parent) as folder:
        with writing_to(parent):
            folder.mkdir(mode=0o700)
        yield folder


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Names the folder where it cannot be written to, or the disk is full.

    Raises:
        ExportError: Instead of `OSError`, but for `FileExistsError`.
    """
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise ExportError(
            f"Cannot write to '{folder}': {error.strerror or error}"
        ) from error


def publish(staged: Path, path: Path) -> None:
    """Renames what is whole and on the disk; a file, over an earlier one.

    After a failure of power there is then all of it or nothing.

    Raises:
        OSError: As renaming does, on a folder for one that exists.
    """
    for file in (staged, *staged.rglob("*")):
        _sync(file)
    os.replace(staged, path)
    with contextlib.suppress(OSError):  # it is published, come what may
        _sync(path.parent)


def publish_file(staged: Path, path: Path) -> Path:
    """Renames a file, over an earlier one if there is one."""
    with writing_to(path.parent):
        publish(staged, path)
    return path


def hidden(folder: Path) -> Path:
    """A path in `folder` that no server reads, and the next export sweeps."""
    return folder / f".{uuid.uuid4().hex}.partial"


def _sweep(folder: Path) -> None:
    """Removes what exporters left that were killed, and no living one's."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not _LEFTOVER.fullmatch(path.name):
                continue
            lock = path.with_suffix(".lock")
            with contextlib.suppress(Timeout, OSError):
                # Whoever still works on it holds its lock.
                with FileLock(lock, blocking=False):
                    remove(path.with_suffix(".partial"))
                    # A lock that is unlinked is no one's: filelock sees it.
                    lock.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Removes a file or a folder, as far as that goes."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path):  # unlike Path's, for any name
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file's content, or a folder's names, are on the disk."""
    if os.name == "nt":  # which has no way to open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(folder: Path, made: list[Path]) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError as error:
            if not path.is_dir():
                raise NotADirectoryError(
                    error.errno, "a file stands in the way"
                ) from error
            continue  # another exporter made it
        made.append(path)
    if not folder.is_dir():
        raise NotADirectoryError(0, "it is not a folder")
