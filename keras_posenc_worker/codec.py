"""Requests to a worker, and its responses, as two files in a folder.

The JSON file refers to arrays in the npz file by their names there. Texts,
which may be any bytes, stand in the JSON itself as base64: npz files cannot
hold them without pickling.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(
    folder: Path,
    name: str,
    message: Mapping[str, Any],
    arrays: Mapping[str, Any],
) -> None:
    """Writes a message; whoever finds its JSON file finds its arrays, too.

    Args:
        folder: Where to.
        name: "request" or "response".
        message: Whatever JSON knows, with references that `encode` gave.
        arrays: The arrays that they refer to.
    """
    import numpy as np

    np.savez(folder / f"{name}.npz", allow_pickle=False, **arrays)
    (folder / f"{name}.json").write_text(json.dumps(message))


def read(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a message and the arrays that it refers to."""
    import numpy as np

    message = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return message, dict(arrays)


def encode(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Encodes an array as a reference, and adds it to the arrays.

    Args:
        value: An array of numbers or, with dtype object, of texts.
        name: What it is called among the arrays.
        arrays: Where it is added, unless it holds texts.
    """
    if value.dtype == object:
        return {
            "shape": value.shape,
            "strings": [
                base64.b64encode(to_bytes(text)).decode()
                for text in value.ravel()
            ],
        }
    # npz files do not know bfloat16.
    is_bfloat16 = value.dtype.name == "bfloat16"
    arrays[name] = value.astype("float32") if is_bfloat16 else value
    return name


def decode(reference: Any, arrays: Mapping[str, Any]) -> Any:
    """Decodes the array that a reference of `encode` stands for."""
    import numpy as np

    if isinstance(reference, str):
        return arrays[reference]
    texts = [base64.b64decode(text) for text in reference["strings"]]
    return np.array(texts, dtype=object).reshape(reference["shape"])


def to_bytes(text: Any) -> bytes:
    """Encodes a text; TensorFlow has bytes already, and ONNX Runtime str."""
    return text if isinstance(text, bytes) else str(text).encode()
