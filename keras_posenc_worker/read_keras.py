"""Loads a `.keras` file."""

import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

from keras_posenc_worker.process import import_for_good

_MESSAGE = 2**20  # most characters of Keras's message, which may quote the file


def prepare(path: Sequence[str], modules: Sequence[str]) -> None:
    """Imports modules that register layers from this `sys.path`."""
    sys.path[:] = path
    for module in modules:
        import_for_good(module)


def main(path: str) -> str | None:
    """Returns why the file does not load, or None."""
    tempfile.tempdir = os.path.dirname(path)
    try:
        load(path)
    except MemoryError:
        raise
    except Exception as error:  # Keras may raise any error
        return (str(error) or type(error).__name__)[:_MESSAGE]
    return None


def load(path: str) -> Any:
    """Loads a model of registered layers."""
    import keras

    packed = os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    # Keras does not compress: a file that unpacks to so much more is a bomb.
    if unpacked > 20 * packed + 2**20:
        raise ValueError(f"it has {packed} bytes, and would grow to {unpacked}")
    return keras.saving.load_model(path, compile=False, safe_mode=True)
