"""Reads what an exported file contains.

The file is not run, and no runtime is loaded: only the modules of TensorFlow
and LiteRT that know their file formats.
"""

from typing import Any

from keras_posenc_worker.formats import read_or_error
from keras_posenc_worker.read_litert import read_litert
from keras_posenc_worker.read_litertlm import read_litertlm
from keras_posenc_worker.read_mediapipe import read_mediapipe
from keras_posenc_worker.read_onnx import read_onnx
from keras_posenc_worker.read_saved_model import read_saved_model


def main(kind: str, path: str) -> dict[str, Any]:
    """Returns the contents of a file, or `error` with the reason."""
    read = {
        "saved_model": read_saved_model,
        "litert": read_litert,
        "litertlm": read_litertlm,
        "onnx": read_onnx,
    }
    found = read_or_error(read[kind], path)
    if found.pop("has_metadata", False):
        found["metadata"] = read_or_error(read_mediapipe, path)
    return found
