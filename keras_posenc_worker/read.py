"""Reads what an exported file contains, without running it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_posenc_worker.read_litert import read_litert
from keras_posenc_worker.read_litertlm import read_litertlm
from keras_posenc_worker.read_mediapipe import read_mediapipe
from keras_posenc_worker.read_onnx import read_onnx
from keras_posenc_worker.read_saved_model import read_saved_model


def prepare() -> None:
    """Does nothing: importing this module has loaded what all readers need."""


def main(kind: str, path: str) -> dict[str, Any]:
    """Returns the contents of a file, or `error` with the reason."""
    read = {
        "saved_model": read_saved_model,
        "litert": read_litert,
        "litertlm": read_litertlm,
        "onnx": read_onnx,
    }
    found = _read_or_error(read[kind], path)
    if found.pop("has_metadata", False):
        found["metadata"] = _read_or_error(read_mediapipe, path)
    return found


def _read_or_error(
    read: Callable[[Path], dict[str, Any]], path: str
) -> dict[str, Any]:
    try:
        return read(Path(path))
    except MemoryError:
        raise
    except Exception as error:  # a damaged file may raise any error
        reason = f"{error}"
        if not (type(error) is ValueError or isinstance(error, OSError)):
            name = type(error).__name__
            reason = f"it is cut off, or damaged ({name}: {reason})"
        return {"error": reason[:2000]}
