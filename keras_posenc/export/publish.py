"""Files and folders that appear in one step, and versions."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from keras_posenc.checks import as_integer
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.regular_files import is_hidden

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


@contextlib.contextmanager
def staging_in(folder: Path) -> Iterator[Path]:
    """Yields a path in `folder` for a file that is renamed there when complete.

    The name begins with a dot and is no integer, so that no server takes it for
    a version. If it was not renamed, it is removed, and so are the folders made
    for it. The next export removes what a killed process left: each process
    holds a lock while it lives.

    Args:
        folder: Where the exported model is to appear; made if missing.

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
    """Yields a private temporary folder, and removes it afterwards.

    If this process is killed, the next one that makes such a folder removes it.

    Raises:
        ExportError: It cannot be made.
    """
    parent = Path(tempfile.gettempdir())
    with staging_in(parent) as folder:
        with writing_to(parent):
            folder.mkdir(mode=0o700)
        yield folder


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turns `OSError` into an `ExportError` that names the folder.

    `FileExistsError` is not turned.

    Raises:
        ExportError: The folder cannot be written to, or the disk is full.
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
    """Flushes a complete file or folder to disk, and renames it.

    A file replaces an earlier one. After a power failure either all of it or
    nothing is there.

    Raises:
        OSError: As renaming does, such as for a folder that exists.
    """
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
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError as error:
            if path.is_symlink() and not path.exists():
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"'{path}' is a link to '{os.readlink(path)}', which does "
                    "not exist: make that folder, or remove the link",
                ) from error
            if not path.is_dir():
                raise NotADirectoryError(
                    error.errno, "a parent folder is a file"
                ) from error
            continue  # another export made it
        made.append(path)
    if not folder.is_dir():
        raise NotADirectoryError(0, "it is not a folder")


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
        keep: Number of versions to keep, this one included, or None for all.
            The one that was the highest until now stays too: a server uses it
            until it has loaded the next.
        step: Shows which versions are removed.

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
            # Another export has taken the number meanwhile.
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
    """Removes a version in one step, so that no server sees half of it."""
    for path in base_path.iterdir():
        if re.fullmatch("[0-9]+", path.name) and int(path.name) == version:
            unseen = hidden(base_path)
            try:
                path.rename(unseen)
            except OSError:  # another export removes it, or we may not
                continue
            remove(unseen)


def check_base(base_path: Path) -> None:
    """Raises `ValueError` for a path that cannot be a folder of versions.

    Such as a version's own folder, or one inside it.
    """
    check_no_pattern(base_path)
    path = base_path.absolute()
    for folder in (path, *path.parents):
        # Methods of Path raise for too long names.
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
    number = as_integer(version)
    if number is None or not 0 < number <= MAX_VERSION:
        raise ValueError(
            f"`version` must be an integer from 1 to 2**63 - 1{or_none}. "
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
    """Returns one more than the highest version.

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
    """Returns the numbers of the versions in a folder, sorted."""
    if not os.path.isdir(base_path):
        return []
    # As servers read version numbers: ASCII digits, 64 bits.
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


# More than `inspect.py` allows.
_MOST_DEPTH, _MOST_FILES = 128, 20_000

Stamp = dict[str, tuple[int, ...]]


def stamp(exported: Path) -> Stamp:
    """Returns the size, times and inode of each file of a model, by its path.

    Of a folder also those of its subfolders, up to the number of files that an
    exported model may have.
    """
    paths = [str(exported)]
    depth = len(exported.parts) + _MOST_DEPTH
    for folder, folders, files in os.walk(exported):
        if folder == paths[0]:
            for names in (folders, files):
                names[:] = [each for each in names if not is_hidden(each)]
        paths += (os.path.join(folder, name) for name in (*folders, *files))
        if len(Path(folder).parts) > depth or len(paths) > _MOST_FILES:
            folders.clear()  # `inspect.py` refuses it
    found: Stamp = {}
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:  # it was removed, or is a broken link
            found[path] = ()
            continue
        found[path] = (
            *(state.st_dev, state.st_ino, state.st_size),
            *(state.st_mtime_ns, state.st_ctime_ns),
        )
    return found


def check_unchanged(exported: Path, before: Stamp) -> None:
    """Raises `ExportVerificationError` if a model's stamp is not `before`."""
    now = stamp(exported)
    changed = sorted(
        path
        for path in {*before, *now}
        if before.get(path) != now.get(path) and not os.path.isdir(path)
    )
    if before != now:
        raise ExportVerificationError(
            f"'{exported}' was changed while it was verified"
            + f" ({', '.join(changed[:3])})" * bool(changed)
            + ". Verify it again while no process writes to it"
        )
