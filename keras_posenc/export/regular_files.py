"""Opens files that others may have written, without waiting for them.

Next to an exported file there may be a named pipe, a link to a device, or
terabytes: the caller's process must not wait for them or read them whole.
"""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

_MOST_FILES = 10_000


def is_hidden(name: str) -> bool:
    """Returns whether no runtime reads a file at the top of a version folder.

    Systems and synchronised folders put such files there: `.DS_Store`, `.git`.
    """
    return name.startswith(".")


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yields what is in a folder and its subfolders, except folders.

    Hidden entries at its top are left out. Raises `ValueError` if it has very
    many.
    """
    remaining, count = [folder], 0
    while remaining:
        path = remaining.pop()
        with os.scandir(path) as found:
            for entry in found:
                if path == folder and is_hidden(entry.name):
                    continue  # of whatever type
                count += 1
                if count > _MOST_FILES:
                    raise ValueError(f"it holds more than {_MOST_FILES} files")
                if entry.is_dir(follow_symlinks=False):
                    remaining.append(Path(entry.path))
                else:
                    yield entry


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file, also through a link."""
    # Opened first and looked at then: the file cannot be swapped in between.
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    descriptor = os.open(
        path,
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0),
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"'{path}' is no regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Reads a regular file."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"'{path}' has more than {most // 2**20} MiB")
    return content
