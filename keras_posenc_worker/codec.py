"""Messages to and from a worker that hold arrays, as two files in a folder.

The JSON file has the message. Its arrays of numbers are in the npz file. Arrays
of texts, which may be any bytes, are in the JSON as base64: npz files cannot
hold them without pickling.
"""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Keys that mark an array. Other keys that begin with "\0" get one more "\0" in
# front: outputs of a file may have any name.
_NUMBERS, _TEXTS = "\0numbers", "\0texts"


def write(folder: Path, name: str, message: Any) -> None:
    """Writes a message; once its JSON file exists, so do its arrays."""
    import numpy as np

    text, arrays = encoded(message)
    np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    (folder / f"{name}.json").write_text(text)


def read(folder: Path, name: str) -> Any:
    """Reads a message with its arrays; texts are bytes."""
    import numpy as np

    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        text = (folder / f"{name}.json").read_text()
        return decoded(text, arrays.__getitem__)


def encoded(message: Any) -> tuple[str, dict[str, Any]]:
    """Returns a message as JSON, and its arrays of numbers by name."""
    arrays: dict[str, Any] = {}

    def encode(value: Any) -> Any:
        if value.dtype == object:
            texts = [
                base64.b64encode(to_bytes(text)).decode()
                for text in value.ravel()
            ]
            return {_TEXTS: texts, "shape": value.shape}
        reference = str(len(arrays))
        # npz files cannot hold bfloat16.
        is_bfloat16 = value.dtype.name == "bfloat16"
        arrays[reference] = value.astype("float32") if is_bfloat16 else value
        return {_NUMBERS: reference}

    return json.dumps(_escaped(message), default=encode), arrays


def decoded(text: str, array_of: Callable[[str], Any]) -> Any:
    """Returns a message of `encoded`, with its arrays by name."""
    import numpy as np

    def decode(value: dict[str, Any]) -> Any:
        if isinstance(value.get(_NUMBERS), str):
            return array_of(value[_NUMBERS])
        if isinstance(value.get(_TEXTS), list):
            texts = [base64.b64decode(text) for text in value[_TEXTS]]
            return np.array(texts, dtype=object).reshape(value["shape"])
        return {
            key[1:] if key[:1] == "\0" else key: each
            for key, each in value.items()
        }

    return json.loads(text, object_hook=decode)


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            "\0" * f"{key}".startswith("\0") + f"{key}": _escaped(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_escaped(each) for each in value]
    return value


def digest(array: Any) -> str:
    """Returns the SHA-256 of an array's numbers."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)  # scalars have no view
    return hashlib.sha256(flat.view("uint8").data).hexdigest()


def to_bytes(text: Any) -> bytes:
    """Encodes a text; TensorFlow returns bytes already, ONNX Runtime str."""
    return text if isinstance(text, bytes) else str(text).encode()
