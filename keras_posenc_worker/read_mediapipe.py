"""Reads MediaPipe's metadata of a LiteRT file."""

import mmap
import zipfile
from pathlib import Path
from typing import Any

from keras_posenc_worker.formats import litert_schema, load_file

_METADATA = b"TFLITE_METADATA"
_MOST = 2**20  # bytes of labels


def read_mediapipe(path: Path) -> dict[str, Any]:
    """Returns `task` and `labels` of a file for a text task, else nothing."""
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
    if not any(
        unit.optionsType == schema.ProcessUnitOptions.BertTokenizerOptions
        for unit in graph.inputProcessUnits or []
    ):
        return {}
    (output, *_) = graph.outputTensorMetadata or [schema.TensorMetadataT()]
    labels = [
        each.name.decode()
        for each in output.associatedFiles or []
        if each.type == schema.AssociatedFileType.TENSOR_AXIS_LABELS
    ]
    found = None
    if labels:
        with zipfile.ZipFile(path) as archive, archive.open(labels[0]) as file:
            lines = file.read(_MOST + 1)  # its claimed size may be false
        if len(lines) > _MOST:
            raise ValueError(f"its labels have more than {_MOST >> 20} MiB")
        found = lines.decode().removesuffix("\n").split("\n")
    name = "embedder" if output.name == b"embedding" else "classifier"
    return {"task": f"text_{name}", "labels": found}
