"""Reads MediaPipe's metadata of a LiteRT file."""

import hashlib
import mmap
import zipfile
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import litert_schema, load_file

_METADATA = b"TFLITE_METADATA"
# Bytes; the largest known vocabularies have a tenth of it.
_MOST = 32 * 2**20


def read_mediapipe(path: Path) -> dict[str, Any]:
    """Returns a file's metadata for a text task; none for another task.

    The keys are `task`, `labels` (or None), `tokens`, their number, and
    `vocabulary`, the SHA-256 of their lines.
    """
    lite = litert_schema()
    with path.open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = lite.Model.GetRootAs(content, 0)
    buffers = [
        model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
        for entry in map(model.Metadata, range(model.MetadataLength()))
        if entry.Name() == _METADATA
    ]
    schema = load_file(
        "mediapipe", "tasks/metadata/metadata_schema_py_generated.py"
    )
    metadata = schema.ModelMetadataT.InitFromObj(
        schema.ModelMetadata.GetRootAs(buffers[0], 0)
    )
    (graph, *_) = metadata.subgraphMetadata or [schema.SubGraphMetadataT()]
    tokenizers = [
        unit.options
        for unit in graph.inputProcessUnits or []
        if unit.optionsType == schema.ProcessUnitOptions.BertTokenizerOptions
    ]
    if not tokenizers:
        return {}
    (output, *_) = graph.outputTensorMetadata or [schema.TensorMetadataT()]
    labels = [
        each.name
        for each in output.associatedFiles or []
        if each.type == schema.AssociatedFileType.TENSOR_AXIS_LABELS
    ]
    with zipfile.ZipFile(path) as archive:
        vocabulary = _lines(archive, tokenizers[0].vocabFile[0].name)
        found = _lines(archive, labels[0]) if labels else None
    return {
        "task": "text_embedder"
        if output.name == b"embedding"
        else "text_classifier",
        "labels": found,
        "tokens": len(vocabulary),
        "vocabulary": hashlib.sha256(
            "\n".join(vocabulary).encode()
        ).hexdigest(),
    }


def _lines(archive: zipfile.ZipFile, packed_name: bytes) -> list[str]:
    name = packed_name.decode()
    entries = [each for each in archive.infolist() if each.filename == name]
    if len(entries) != 1:
        raise ValueError(
            f"it must hold {name!r} once, which its metadata names, and has "
            f"{len(entries)}"
        )
    with archive.open(entries[0]) as file:
        content = file.read(_MOST + 1)  # the size that it claims may be false
    if len(content) > _MOST:
        raise ValueError(f"its {name!r} has more than {_MOST >> 20} MiB")
    return content.decode().removesuffix("\n").split("\n")
