"""Opens files of others, without waiting for pipes or reading terabytes."""

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

_MOST_FILES = 10_000


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yields all files in a folder, except hidden ones at its top."""
    remaining, count = [folder], 0
    while remaining:
        path = remaining.pop()
        with os.scandir(path) as found:
            for entry in found:
                if path == folder and entry.name.startswith("."):
                    continue  # no runtime reads .DS_Store or .git
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
