"""Files and folders that appear in one step: whole, or not at all."""

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

from keras_posenc.export.errors import ExportError

_LEFTOVER = re.compile(r"\.[0-9a-f]{32}\.(partial|lock)")


def as_path(name: str, value: Any) -> Path:
    """Returns a path with `~` expanded; raises `ValueError` for other types."""
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str):
            return Path(os.path.expanduser(path))
    raise ValueError(
        f"`{name}` must be a path. Received: {name} of type "
        f"{type(value).__name__}"
    )


@contextlib.contextmanager
def staging_in(folder: Path) -> Iterator[Path]:
    """Yields a path in `folder` for a file that is renamed there when complete.

    No server takes its name for a version. If it was not renamed, it is
    removed, and so are the folders made for it. The next use of the folder
    removes what a killed process left: each holds a lock while it lives.
    """
    staged = hidden(folder)
    lock = FileLock(staged.with_suffix(".lock"))
    made: list[Path] = []
    try:
        with writing_to(folder):
            _make_folders(folder, made)
            _sweep(folder)
            # Fails at once where filelock would wait.
            Path(lock.lock_file).touch()
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
    """Yields a private temporary folder, and removes it afterwards."""
    parent = Path(tempfile.gettempdir())
    with staging_in(parent) as folder:
        with writing_to(parent):
            folder.mkdir(mode=0o700)
        yield folder


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turns `OSError` into an `ExportError`, except `FileExistsError`."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise ExportError(
            f"Cannot write to '{folder}': {error.strerror or error}"
        ) from error


def publish(staged: Path, path: Path) -> None:
    """Flushes a complete file or folder to disk, and renames it."""
    for file in (staged, *staged.rglob("*")):
        _sync(file)
    os.replace(staged, path)
    with contextlib.suppress(OSError):  # it is published already
        _sync(path.parent)


def publish_file(staged: Path, path: Path) -> Path:
    """Renames a file, over an earlier one if there is one."""
    with writing_to(path.parent):
        publish(staged, path)
    return path


def publish_keras(model: Any, path: Path) -> Path:
    """Saves a model as a `.keras` file, over an earlier one if there is one."""
    with staging_in(path.parent) as staged, writing_to(path.parent):
        staged.mkdir()
        whole = staged / path.name  # Keras needs a name that ends in .keras
        model.save(whole)
        publish(whole, path)
    return path


def hidden(folder: Path) -> Path:
    """Returns a path in `folder` that servers skip and later exports remove."""
    return folder / f".{uuid.uuid4().hex}.partial"


def _sweep(folder: Path) -> None:
    """Removes what killed exports left. Those that still run hold a lock."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if not _LEFTOVER.fullmatch(path.name):
                continue
            lock = path.with_suffix(".lock")
            with contextlib.suppress(Timeout, OSError):
                # A process that still works on it holds its lock.
                with FileLock(lock, blocking=False):
                    remove(path.with_suffix(".partial"))
                    # Safe: filelock notices if its lock file was unlinked.
                    lock.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Removes a file or a folder; ignores errors."""
    with contextlib.suppress(OSError):
        if os.path.isdir(path):  # Path.is_dir raises for too long names
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_folders(folder: Path, made: list[Path]) -> None:
    folder = folder.resolve()  # a link to nothing yet makes what it names
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError as error:
            if not path.is_dir():
                raise NotADirectoryError(
                    error.errno, "a parent folder is a file"
                ) from error
            continue  # another export made it
        made.append(path)
    if not folder.is_dir():
        raise NotADirectoryError(0, "it is not a folder")


def check_free(folder: Path) -> None:
    """Raises `FileExistsError` unless a folder is new or empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(
            f"'{folder}' is not empty, and nothing is overwritten: "
            "`folder` must be new or empty"
        )
