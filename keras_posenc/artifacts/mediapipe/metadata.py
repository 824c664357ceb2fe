"""What MediaPipe reads in a LiteRT file besides its graph.

A flatbuffer in the file says which input is which, and names the vocabulary
and the labels, which are packed behind the file as a zip archive.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_posenc.artifacts.ground.errors import (
    ExportError,
    ExportVerificationError,
)
from keras_posenc.artifacts.isolated.reading import task_reading
from keras_posenc.artifacts.isolated.reading.formats import (
    litert_schema,
    pack,
    unpack,
)
from keras_posenc.artifacts.mediapipe.requirements import TASKS, check_task
from keras_posenc.artifacts.mediapipe.text_tasks import (
    IDS,
    MASK,
    SEGMENTS,
    TextTask,
    resolve_task,
)
from keras_posenc.artifacts.processes.isolation import (
    IsolationError,
    Limits,
    run_isolated,
)

_METADATA = "TFLITE_METADATA"
_VOCABULARY, _LABELS = "vocab.txt", "labels.txt"
_SCORES, _VECTOR = "probability", "embedding"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # lest the same export give other bytes


def require_schema() -> Any:
    """MediaPipe's schema of the metadata.

    Raises:
        ImportError: MediaPipe is not installed.
    """
    try:
        from mediapipe.tasks.metadata import metadata_schema_py_generated
    except ImportError as error:
        raise ImportError(
            "`task` needs MediaPipe's schema of a file's metadata: "
            "pip install 'keras-posenc[mediapipe]'"
        ) from error
    return metadata_schema_py_generated


def with_metadata(content: bytes, task: TextTask) -> bytes:
    """A LiteRT file that MediaPipe takes, from one without metadata.

    Raises:
        ExportError: The file is of several graphs, as a loop makes it.
    """
    schema, model = litert_schema(), unpack(content)
    if len(model.subgraphs) > 1:
        raise ExportError(
            f"Model '{task.text.model.name}' has loops or branches, as "
            "recurrent layers have, and MediaPipe does not take those. Unroll "
            "them (unroll=True), and fix the shape of ids by `signatures`"
        )
    (graph,), (signature,) = model.subgraphs, model.signatureDefs
    names = {
        entry.tensorIndex: entry.name.decode() for entry in signature.inputs
    }
    metadata = _metadata(task, [names[tensor] for tensor in graph.inputs])
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(metadata)
    model.buffers.append(buffer)
    entry.name, entry.buffer = _METADATA, len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    file = io.BytesIO(pack(model))
    file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file, "a") as archive:
        for name, lines in (
            (_VOCABULARY, task.vocabulary),
            (_LABELS, task.labels),
        ):
            if lines is not None:
                archive.writestr(
                    zipfile.ZipInfo(name, _EPOCH), "\n".join(lines) + "\n"
                )
    return file.getvalue()


def packed_task(
    model: keras.Model,
    path: Path,
    signatures: Mapping[str, Any] | None,
    labels: Any,
) -> tuple[TextTask | None, list[str]]:
    """The task that a file is for, if any, as its model would make it.

    Args:
        model: The model.
        path: The file, which a process of its own reads.
        signatures: As for `resolve_task`.
        labels: Those that the file must have, or None.

    Returns:
        The task, and the names of what the file has and nothing was compared
        with.

    Raises:
        ValueError: The model is for no task, or `labels` are given and the
            file is for none.
        ExportVerificationError: The file's vocabulary is another than the
            model's, or its labels than those given, or they cannot be read.
    """
    found = _read(path)
    if not found or "other" in found:
        if labels is not None:
            raise ValueError(
                "`labels` apply to SavedModels, and to LiteRT files exported "
                f"with task='text_classifier', and '{path}' is neither"
            )
        # It may cut texts, and name what comes out, as nobody here knows.
        return None, ["the metadata for MediaPipe"] * ("other" in found)
    if labels is not None:
        check_task("text_classifier", labels)
    name = "text_embedder" if found["output"] == _VECTOR else TASKS[0]
    task = resolve_task(model, name, labels, signatures=signatures)
    if found["vocabulary"] != task.vocabulary:
        raise ExportVerificationError(
            f"The vocabulary in '{path}' is not the one of model '{model.name}'"
        )
    if labels is None:
        return task, ["labels"] * (found["labels"] is not None)
    if found["labels"] != task.labels:
        raise ExportVerificationError(
            f"The labels in '{path}' are {found['labels'] or 'none'}, and not "
            f"those given, {task.labels}"
        )
    return task, []


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(
            run_isolated(task_reading.__file__, str(path), limits=Limits())
        )
    except IsolationError as error:
        found = {"error": f"its reading {error}"}
    if "error" in found:
        raise ExportVerificationError(
            f"'{path}' holds no readable vocabulary and labels for MediaPipe: "
            f"{found['error']}"
        )
    return found


def _metadata(task: TextTask, inputs: list[str]) -> bytes:
    import flatbuffers

    schema = require_schema()

    def file(name: str, kind: int) -> Any:
        record = schema.AssociatedFileT()
        record.name, record.type = name, kind
        return record

    def tensor(name: str, description: str) -> Any:
        record = schema.TensorMetadataT()
        record.name, record.description = name, description
        record.content = schema.ContentT()
        record.content.contentPropertiesType = (
            schema.ContentProperties.FeatureProperties
        )
        record.content.contentProperties = schema.FeaturePropertiesT()
        return record

    tokenizer = schema.ProcessUnitT()
    tokenizer.optionsType = schema.ProcessUnitOptions.BertTokenizerOptions
    tokenizer.options = schema.BertTokenizerOptionsT()
    tokenizer.options.vocabFile = [
        file(_VOCABULARY, schema.AssociatedFileType.VOCABULARY)
    ]
    is_classifier = task.name == "text_classifier"
    output = tensor(
        _SCORES if is_classifier else _VECTOR,
        "A score for each label."
        if is_classifier
        else "The embedding of the text.",
    )
    if task.labels is not None:
        output.associatedFiles = [
            file(_LABELS, schema.AssociatedFileType.TENSOR_AXIS_LABELS)
        ]
    descriptions = {
        IDS: "Ids of the tokens.",
        MASK: "1 for a token, 0 for padding.",
        SEGMENTS: "0 throughout.",
    }
    graph = schema.SubGraphMetadataT()
    graph.inputTensorMetadata = [
        tensor(name, descriptions[name]) for name in inputs
    ]
    graph.outputTensorMetadata = [output]
    graph.inputProcessUnits = [tokenizer]
    record = schema.ModelMetadataT()
    record.name = task.text.model.name
    record.description = f"MediaPipe {task.name}, exported by keras_posenc."
    record.subgraphMetadata = [graph]
    builder = flatbuffers.Builder(0)
    builder.Finish(record.Pack(builder), b"M001")
    return bytes(builder.Output())
