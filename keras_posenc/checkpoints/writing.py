"""Writes the files of a checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.checkpoints.tensors import INDEX, WHOLE

_MOST = 5_000_000_000  # bytes of a file, as transformers has it


def write_json(path: Path, values: Any) -> None:
    """Writes a JSON file, as transformers does."""
    text = json.dumps(values, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8", newline="\n")


def write_tensors(
    folder: Path, tensors: Mapping[str, np.ndarray], file: str = WHOLE
) -> None:
    """Writes tensors to one file, or to several beyond 5 GB, and an index."""
    shards: list[dict[str, np.ndarray]] = [{}]
    size = 0
    for name, values in tensors.items():
        if shards[-1] and size + values.nbytes > _MOST:
            shards.append({})
            size = 0
        shards[-1][name] = values
        size += values.nbytes
    if len(shards) == 1:
        _write_file(folder / file, shards[0])
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write_file(folder / file, shard)
        places |= dict.fromkeys(shard, file)
    total = sum(values.nbytes for values in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    write_json(folder / INDEX, index)


def _write_file(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a file in the format of the library safetensors.

    The library itself copies all tensors to one string first.
    """
    # This tells transformers whose axis order the tensors have.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        begin, end = end, end + values.nbytes
        header[name] = {
            "dtype": {"float32": "F32", "float64": "F64"}[values.dtype.name],
            "shape": values.shape,
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for values in tensors.values():
            np.ascontiguousarray(values).tofile(file)  # others are slow
