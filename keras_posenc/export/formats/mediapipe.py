"""Files for MediaPipe's text tasks."""

import dataclasses
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.check import compare
from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.generate import Probe, texts_beyond
from keras_posenc.export.probes.graphs import Graphs
from keras_posenc.export.probes.quality import qualities
from keras_posenc.export.probes.reference import Reference, runner_of
from keras_posenc.export.signatures.cut_strings import (
    LIMITS,
    from_ids,
    limit_of,
)
from keras_posenc.export.signatures.from_model import output_of, with_shapes
from keras_posenc.export.signatures.labels import check_labels, outputs_of
from keras_posenc.export.signatures.resolve import as_given, resolve_signatures
from keras_posenc.export.signatures.signature import (
    DEFAULT,
    Arrays,
    Oracle,
    Signature,
)
from keras_posenc.export.worker_client import (
    MEMORY,
    Limits,
    WorkerError,
    run_in_worker,
)
from keras_posenc.keras_internals import layer_of, sources_of
from keras_posenc_worker import run_mediapipe
from keras_posenc_worker.formats import litert_schema, pack, unpack

TASKS = ("text_classifier", "text_embedder")

_OF_WORDPIECE = ("get_vocabulary", "lowercase", "sequence_length")


def check_task(task: Any, labels: Any) -> None:
    """Raises `ValueError` for an unknown task, or labels without one."""
    if task is not None and task not in TASKS:
        raise ValueError(
            "`task` must be one of 'text_classifier', 'text_embedder', or "
            f"None. Received: task={task!r}"
        )
    if labels is None:
        return
    if task != "text_classifier":
        raise ValueError(
            "`labels` name the scores of `task='text_classifier'`. Received: "
            f"labels, task={task!r}"
        )
    if isinstance(labels, Mapping):
        raise ValueError("`labels` of a task must be a list of strings")
    check_labels(labels)


def _check_tokenizer(layer: Any, tokenize: Callable[[str], np.ndarray]) -> None:
    """Raises `ValueError` if MediaPipe would make other ids."""
    tokens = list(layer.get_vocabulary())
    if (
        getattr(layer, "num_separators", None) is not None  # of pairs
        or not layer.lowercase
        or tokens[:1] != ["[PAD]"]
        or [tokens[index] for index in tokenize("")] != ["[CLS]", "[SEP]"]
    ):
        raise ValueError(
            "MediaPipe's text tasks need a tokenizer of single texts with "
            "lowercase=True, that puts [CLS] before a text and [SEP] after it, "
            "and whose vocabulary begins with [PAD], "
            f"unlike '{layer.name}'. Change it, or leave out `task` for a file "
            "that takes token ids"
        )


def _check_output(task: str, signature: Signature, labels: Any) -> None:
    first, *others = keras.tree.flatten(output_of(signature.model))
    if others or len(first.shape) != 2 or "float" not in first.dtype:
        raise ValueError(
            f"`task='{task}'` needs one output of floats, of shape (batch, "
            f"number). Received: shapes {outputs_of(signature)}. Add a pooling "
            "over tokens to the model, such as kp.Pooling1D('mean'), or leave "
            "out `task`"
        )
    if labels is not None and first.shape[1] != len(labels):
        raise ValueError(
            f"`labels` must name each of the {first.shape[1]} scores, and are "
            f"{len(labels)}. Of one sigmoid p make two scores: "
            "keras.layers.Concatenate()([1 - p, p])"
        )


IDS, MASK, SEGMENTS = "ids", "mask", "segment_ids"


@dataclasses.dataclass(frozen=True)
class TextTask:
    """The parts of a file for a MediaPipe task."""

    name: str  # one of `TASKS`
    signature: Signature  # of ids, mask and segments
    vocabulary: list[str]  # WordPiece tokens in the order of their ids
    labels: list[str] | None  # the names of the scores
    text: Signature  # of the model itself
    tokenize: Callable[[str], np.ndarray]  # to all ids of a text
    limit: int | None  # the most of them that the model takes; None for all

    def rows(self, texts: Iterable[str]) -> Iterator[tuple[str, Arrays]]:
        """Yields texts with MediaPipe's inputs, but none that only it cuts."""
        length = self.signature.specs[IDS].shape[1]
        for text in texts:
            ids = self.tokenize(text)
            if length in (None, self.limit) or len(ids) <= length:
                ids = _shortened(ids, length)
                row = np.zeros((1, length or len(ids)), "int32")
                row[0, : len(ids)] = ids
                yield text, _as_bert(row)


def resolve_task(
    model: keras.Model,
    task: str,
    labels: Sequence[str] | None = None,
    signatures: Mapping[str, Any] | None = None,
) -> TextTask:
    """Returns the parts of a file for a task, by `signatures` of one name."""
    whole, *_ = resolve_signatures(model)
    named = {DEFAULT: model} if signatures is None else signatures
    given = [*as_given(named)]
    cut = from_ids(whole)
    tokenizer: Any = None
    before = None
    if cut is not None:
        tokenizer = layer_of(cut.cut_at)
        before, *_ = map(layer_of, sources_of(cut.cut_at))
    if (
        cut is None
        or not all(hasattr(tokenizer, each) for each in _OF_WORDPIECE)
        or not isinstance(before, keras.layers.InputLayer)
    ):
        raise ValueError(
            f"`task='{task}'` needs a model that takes strings, and begins "
            "with a WordPiece tokenizer (kp.WordpieceTokenizer). Received: "
            f"model '{model.name}'. Leave out `task` for a file that takes "
            "numbers, such as token ids. Of a model with a prompt give "
            "model.with_prompt(''), and have the app put it before each text"
        )
    # MediaPipe cuts at its own input length, so compare with uncut ids.
    config = tokenizer.get_config()
    config |= {name: None for name in LIMITS if name in config}
    uncut = type(tokenizer).from_config(config)

    def tokenize(text: str) -> np.ndarray:
        ids = uncut(np.array([text], dtype=object))
        return np.asarray(keras.ops.convert_to_numpy(ids))[0]

    _check_tokenizer(tokenizer, tokenize)
    _check_output(task, whole, labels)
    signature = _of_bert(given, model, cut, tokenizer)
    return TextTask(
        name=task,
        signature=signature,
        vocabulary=list(tokenizer.get_vocabulary()),
        labels=None if labels is None else list(labels),
        text=whole,
        tokenize=tokenize,
        limit=limit_of(tokenizer),
    )


def _of_bert(
    signatures: Sequence[tuple[str, Any, Mapping[str, Any]]],
    model: keras.Model,
    cut: Signature,
    tokenizer: Any,
) -> Signature:
    (name, given, shapes), *others = signatures
    if others or given is not model:
        raise ValueError(
            "A task has one signature, of the model itself, as in `signatures="
            f"{{'{DEFAULT}': (model, {{'ids': (1, 64)}})}}`. Received: "
            f"signatures={signatures!r:.200}"
        )
    free = keras.InputSpec(shape=(None, None), dtype="int32")
    sizes = {IDS: (1, None), **shapes}
    spec = with_shapes(name, model, {IDS: free}, sizes)[IDS]
    limit, fixed = limit_of(tokenizer), tokenizer.sequence_length
    length = spec.shape[1]
    if spec.shape[0] != 1 or not (
        length is None or (fixed or 2) <= length <= (limit or length)
    ):
        raise ValueError(
            f"Signature '{name}': MediaPipe gives one text at a time: ids must "
            f"have the shape (1, {limit or 'n'}) or (1, None). Received: shape "
            f"{spec.shape}"
        )
    ((cut_name, cut_spec),) = cut.specs.items()

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        ids = tensors[IDS] * tensors[MASK]
        if limit is not None and length is None:
            # A longer text is cut to the model's length, and keeps its [SEP].
            kept = keras.ops.minimum(keras.ops.shape(ids)[1], limit) - 1
            ids = keras.ops.concatenate([ids[:, :kept], ids[:, -1:]], axis=1)
        return cut.call({cut_name: ids})

    def to_base(inputs: Arrays) -> Arrays:
        (row,) = inputs[IDS] * inputs[MASK]
        row = _shortened(row, limit)
        if fixed is not None:
            row = np.pad(row, (0, fixed - len(row)))
        return {cut_name: row[np.newaxis].astype(cut_spec.dtype)}

    ids_spec = keras.InputSpec(shape=spec.shape, dtype=cut_spec.dtype)
    return Signature(
        name,
        cut.model,
        dict.fromkeys((IDS, MASK, SEGMENTS), spec),
        call,
        Oracle(
            dataclasses.replace(cut, name=name, specs={cut_name: ids_spec}),
            to_base=to_base,
            widen=lambda inputs: _as_bert(inputs[cut_name].astype("int32")),
        ),
    )


def _shortened(ids: np.ndarray, most: int | None) -> np.ndarray:
    """Returns at most so many ids, of which the last is the text's last."""
    if most is None or len(ids) <= most:
        return ids
    return np.append(ids[: most - 1], ids[-1])


def _as_bert(ids: np.ndarray) -> Arrays:
    return {
        IDS: ids,
        MASK: (ids != 0).astype("int32"),
        SEGMENTS: np.zeros_like(ids),
    }


_VOCABULARY, _LABELS = "vocab.txt", "labels.txt"
# A fixed date, so that the same export has the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def require_schema() -> Any:
    """Returns MediaPipe's schema of the metadata."""
    try:
        from mediapipe.tasks.metadata import metadata_schema_py_generated
    except ImportError as error:
        raise ImportError(
            "`task` needs MediaPipe's schema of a file's metadata: "
            "pip install 'keras-posenc[mediapipe]'"
        ) from error
    return metadata_schema_py_generated


def with_metadata(content: bytes, task: TextTask) -> bytes:
    """Returns a LiteRT file with MediaPipe's metadata."""
    schema, model = litert_schema(), unpack(content)
    if len(model.subgraphs) > 1:
        raise ExportError(
            f"Model '{task.text.model.name}' has loops or branches, as "
            "recurrent layers have, and MediaPipe does not take those. Unroll "
            "them (unroll=True), and fix the shape of ids by `signatures`"
        )
    (graph,), (signature,) = model.subgraphs, model.signatureDefs
    names = {each.tensorIndex: each.name.decode() for each in signature.inputs}
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = [*_metadata(task, [names[x] for x in graph.inputs])]
    model.buffers.append(buffer)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    file = io.BytesIO(pack(model))
    file.seek(0, io.SEEK_END)
    lines = {_VOCABULARY: task.vocabulary, _LABELS: task.labels}
    with zipfile.ZipFile(file, "a") as archive:
        for name, each in lines.items():
            if each is not None:
                packed = zipfile.ZipInfo(name, _EPOCH)
                archive.writestr(packed, "\n".join(each) + "\n")
    return file.getvalue()


def packed_task(
    model: keras.Model,
    found: Inspection,
    signatures: Mapping[str, Any] | None,
    labels: Any,
) -> TextTask | None:
    """Returns the task that a file is for, if any, made from its model."""
    metadata = found.metadata
    if not metadata:
        check_no_labels(labels, found.path)
        return None
    if "error" in metadata:
        raise ExportVerificationError(
            f"'{found.path}' holds no readable labels for MediaPipe: "
            f"{metadata['error']}"
        )
    if labels is not None:
        check_task("text_classifier", labels)
    return resolve_task(model, metadata["task"], labels, signatures=signatures)


def check_no_labels(labels: Any, path: Path) -> None:
    """Raises `ValueError` for labels of a file that has none."""
    if labels is not None:
        raise ValueError(
            "`labels` apply to SavedModels, and to LiteRT files exported "
            f"with task='text_classifier', and '{path}' is neither"
        )


def _metadata(task: TextTask, inputs: list[str]) -> bytes:
    import flatbuffers

    schema = require_schema()
    kinds = schema.AssociatedFileType
    vocabulary = schema.AssociatedFileT(_VOCABULARY, type=kinds.VOCABULARY)
    tokenizer = schema.ProcessUnitT(
        schema.ProcessUnitOptions.BertTokenizerOptions,
        schema.BertTokenizerOptionsT(vocabFile=[vocabulary]),
    )
    outputs = {"text_classifier": "probability", "text_embedder": "embedding"}
    output = schema.TensorMetadataT(outputs[task.name])
    if task.labels is not None:
        output.associatedFiles = [
            schema.AssociatedFileT(_LABELS, type=kinds.TENSOR_AXIS_LABELS)
        ]
    graph = schema.SubGraphMetadataT(
        inputTensorMetadata=[schema.TensorMetadataT(name) for name in inputs],
        outputTensorMetadata=[output],
        inputProcessUnits=[tokenizer],
    )
    record = schema.ModelMetadataT(
        task.text.model.name,
        f"MediaPipe {task.name}, exported by keras_posenc.",
        subgraphMetadata=[graph],
    )
    builder = flatbuffers.Builder(0)
    builder.Finish(record.Pack(builder), b"M001")
    return bytes(builder.Output())


def verify_in_mediapipe(
    task: TextTask, file: Path, reference: Reference, own: Sequence[str]
) -> int:
    """Runs texts of ASCII, which both cut alike, and returns how many."""
    name, (output,) = task.signature.name, reference.probes[0].outputs
    texts = [*texts_beyond(task.limit), *own]
    if any(each.is_sample for each in reference.probes) and reference.limits:
        texts = [*own]
    rows = dict(task.rows(filter(str.isascii, texts)))
    run = runner_of(task.text, Graphs(task.text.innermost))
    (text_name,) = task.text.specs
    probes = []
    for text, inputs in rows.items():
        (wanted,) = run({text_name: np.array([text], object)}).values()
        probes.append(Probe(name, inputs, {output: np.asarray(wanted)}))
    try:
        found = run_in_worker(
            run_mediapipe.__name__,
            str(file.resolve()),
            task.name,
            [*rows],
            limits=Limits(
                memory=2 * MEMORY + 4 * file.stat().st_size,
                seconds=60,
                timeout=300,
            ),
        )
    except WorkerError as error:
        raise ExportVerificationError(
            f"MediaPipe {error} while it ran '{file}'"
        ) from error
    if task.labels is not None and found.get("labels") != task.labels:
        raise ExportVerificationError(
            f"MediaPipe finds the labels {found.get('labels')} in '{file}', "
            f"and they should be {task.labels}",
        )
    outputs = [
        {output: np.array([row], probe.outputs[output].dtype)}
        for probe, row in zip(probes, found["outputs"], strict=True)
    ]
    cases = [
        compare(probe, {"outputs": got}, reference)
        for probe, got in zip(probes, outputs, strict=True)
    ]
    wrong = [str(each) for each in cases if not each.is_right]
    quality = qualities(
        (name, x.outputs, y) for x, y in zip(probes, outputs, strict=True)
    )
    wrong += [
        each.text(reference.limits)
        for each in quality.values()
        if each.exceeded(reference.limits)
    ]
    if wrong:
        raise ExportVerificationError(
            f"MediaPipe's outputs differ from the model's: {wrong[0]}",
        )
    return len(probes)
