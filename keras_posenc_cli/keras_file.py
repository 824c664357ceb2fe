"""Loads `.keras` files from anywhere: first in a worker, with limits."""

import contextlib
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export.regular_files import open_regular
from keras_posenc.export.worker_client import (
    MEMORY,
    MIB,
    Limits,
    Worker,
    WorkerError,
)
from keras_posenc_worker import read_keras

# Needs of Keras, its threads on eight cores, and layers without weights.
_MEMORY = MEMORY + 512 * MIB
_SECONDS = 20  # of processor time, and one more for each _PER_SECOND bytes
_PER_SECOND = 4 * MIB
_GROWTH = 20  # Keras does not compress: one that grows more is a bomb
_TIMES = 16  # times the file's size: weights are held two or three times


@contextlib.contextmanager
def keras_loader(
    package: str,
    modules: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> Iterator[Callable[[Path], Any]]:
    """Yields a function that loads a `.keras` file once a worker has loaded it.

    The import of `modules`, which register layers, has no limits. The function
    raises `ValueError` with Keras's reason, or with the limit that was met.
    """
    with Worker(read_keras.__name__) as worker:
        path = [*map(str, sys.path), *folders]
        worker.call("prepare", path, [package, *modules])
        yield functools.partial(_load, worker)


def _load(worker: Worker, path: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        # A copy, so that the file loaded here is the one that was tried.
        copy = os.path.join(folder, "model.keras")
        with open_regular(path) as source, open(copy, "wb") as target:
            shutil.copyfileobj(source, target, MIB)
        size = os.path.getsize(copy)
        seconds = _SECONDS + size // _PER_SECOND
        limits = Limits(
            memory=_MEMORY + _TIMES * size,
            seconds=seconds,
            file=_GROWTH * size + 64 * MIB,
            timeout=60 + 4 * seconds,
        )
        try:
            reason = worker.run(copy, limits=limits)
        except WorkerError as error:
            raise ValueError(
                "loading it needs more than a file of its size should: the "
                f"process that loaded it {error}"
            ) from error
        if reason is not None:
            raise ValueError(reason)
        return read_keras.load(copy)
