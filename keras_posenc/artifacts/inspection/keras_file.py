"""`.keras` files that may come from anywhere."""

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.ground.regular_files import open_regular
from keras_posenc.artifacts.isolated.reading import keras_loading
from keras_posenc.artifacts.processes.isolation import (
    MEMORY,
    MIB,
    Isolated,
    IsolationError,
    Limits,
)

# Keras, with threads for eight cores, and some layers without weights.
_MEMORY = MEMORY + 512 * MIB
_SECONDS = 20  # of work, and one more for each of these bytes
_PER_SECOND = 4 * MIB
_TIMES = 16  # the file's size: its weights are there twice or thrice
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
# Where the package was found, with all that it imports: one process is prepared
# with these, whatever is added later.
_PATH = tuple(map(str, sys.path))


@contextlib.contextmanager
def keras_loader(
    package: str,
    modules: Sequence[str] = (),
    folders: Sequence[str] = (),
    *,
    is_fresh: bool = False,
) -> Iterator[Callable[[Path], Any]]:
    """A function that loads one file, once another process has loaded it.

    That process has limits to its memory and time, by the file's size.

    Args:
        package: It registers layers, and computes nothing when it is imported:
            a process that has done so is kept for further files.
        modules: More that register layers, and are trusted: their import has
            no limits. Whoever calls the function has imported them by then.
        folders: Where these are looked for after `sys.path`.
        is_fresh: Whether this process has done nothing but import the package.
            A copy of it does then, where there can be one.

    Yields:
        A function of a file's path, which returns its model. It raises
        `ValueError` where the other process did not load it, with Keras's
        reason, or which limit it came upon, and `OSError` where the file cannot
        be read.
    """
    if is_fresh and sys.platform == "linux":
        process = Isolated(keras_loading.__file__, None, True, **_ENVIRONMENT)
    else:
        process = Isolated(
            keras_loading.__file__, [_PATH, (package,)], **_ENVIRONMENT
        )
    with process:
        process.prepare([*map(str, sys.path), *folders], modules)
        yield functools.partial(_load, process)


def _load(process: Isolated, path: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        # What is loaded here is what was tried, whoever writes to the file.
        copy = os.path.join(folder, "model.keras")
        with open_regular(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, MIB)
        limits = _limits(os.path.getsize(copy))
        try:
            answer = process.run(copy, limits=limits)
        except IsolationError as error:
            raise ValueError(
                "loading it needs more than a file of its size should: the "
                f"process that loaded it {error}"
            ) from error
        reason = json.loads(answer.splitlines()[-1])
        if reason is not None:
            raise ValueError(reason)
        return keras_loading.load(copy)


def _limits(size: int) -> Limits:
    seconds = _SECONDS + size // _PER_SECOND
    return Limits(
        memory=_MEMORY + _TIMES * size,
        seconds=seconds,
        file=keras_loading.GROWTH * size + 64 * MIB,
        timeout=60 + 4 * seconds,
    )
