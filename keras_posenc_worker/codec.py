"""Messages that hold arrays, as one file: of workers, and of cases.

It is an uncompressed zip file of `record.json`, and of arrays of numbers as
`.npy`. Arrays of texts, which may be any bytes, are in the JSON as base64.
"""

import base64
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

RECORD = "record.json"
# Keys that mark an array, by a text and by a list: outputs of a file, which may
# have any name, are neither.
_NUMBERS, _TEXTS = "\0numbers", "\0texts"


def write(file: Path | IO[bytes], message: Any) -> None:
    """Writes a message, the same bytes each time."""
    import numpy as np

    text, arrays = encoded(message)
    with zipfile.ZipFile(file, "w") as members:
        members.writestr(zipfile.ZipInfo(RECORD), text)  # of a fixed date
        for name, array in arrays.items():
            info, is_large = zipfile.ZipInfo(f"{name}.npy"), array.nbytes > 1e9
            with members.open(info, "w", force_zip64=is_large) as member:
                ordered = np.asarray(array, order="C")
                np.lib.format.write_array(member, ordered, allow_pickle=False)


def read(file: Path | IO[bytes]) -> Any:
    """Reads anyone's message; raises `ValueError` if it is damaged."""
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as arrays:
            if any(each.compress_type for each in arrays.zip.infolist()):
                raise ValueError("its arrays are compressed")
            left = [*arrays.files]

            def array(name: str) -> Any:  # each once, or memory has no limit
                left.remove(name)
                return arrays[name]

            return _decoded(arrays.zip.read(RECORD).decode(), array)
    except (
        zipfile.BadZipFile,
        AttributeError,
        EOFError,
        KeyError,
        OverflowError,
        RuntimeError,  # also of encryption, and of deep JSON
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(str(error) or type(error).__name__) from error


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
        # .npy files cannot hold bfloat16.
        is_bfloat16 = value.dtype.name == "bfloat16"
        arrays[reference] = value.astype("float32") if is_bfloat16 else value
        return {_NUMBERS: reference}

    return json.dumps(message, default=encode), arrays


def _decoded(text: str, array_of: Callable[[str], Any]) -> Any:
    import numpy as np

    def decode(value: dict[str, Any]) -> Any:
        if isinstance(value.get(_NUMBERS), str):
            return array_of(value[_NUMBERS])
        if isinstance(value.get(_TEXTS), list):
            texts = [base64.b64decode(text) for text in value[_TEXTS]]
            return np.array(texts, dtype=object).reshape(value["shape"])
        return value

    return json.loads(text, object_hook=decode)


def digest(array: Any) -> str:
    """Returns the SHA-256 of the numbers of an array, or of a tensor."""
    import numpy as np

    array = np.asarray(array)  # of a tensor no copy
    flat = np.ascontiguousarray(array).reshape(-1)  # scalars have no view
    return hashlib.sha256(flat.view("uint8").data).hexdigest()


def to_bytes(text: Any) -> bytes:
    """Encodes a text; TensorFlow returns bytes already, ONNX Runtime str."""
    return text if isinstance(text, bytes) else str(text).encode()
