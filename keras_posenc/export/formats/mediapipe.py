"""Files for MediaPipe's text tasks."""

import collections
import dataclasses
import io
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.probes.compare import difference
from keras_posenc.export.probes.generate import Probe, texts_beyond
from keras_posenc.export.probes.quality import quality_of
from keras_posenc.export.probes.reference import Memory, Reference, runner_of
from keras_posenc.export.probes.samples import split_texts
from keras_posenc.export.signatures.cut_strings import (
    LIMITS,
    from_ids,
    limit_of,
)
from keras_posenc.export.signatures.from_model import narrowed, output_of
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
from keras_posenc_worker import read_mediapipe, run_mediapipe
from keras_posenc_worker.formats import (
    litert_schema,
    pack,
    unpack,
)

TASKS = ("text_classifier", "text_embedder")

_PAD, _UNK, _CLS, _SEP = "[PAD]", "[UNK]", "[CLS]", "[SEP]"


def check_task(task: Any, labels: Any) -> None:
    """Raises `ValueError` for an unknown task, or labels without one."""
    if task is not None and task not in TASKS:
        raise ValueError(
            "`task` must be one of 'text_classifier', 'text_embedder', or "
            f"None. Received: task={task!r}"
        )
    if labels is not None:
        if task != "text_classifier":
            raise ValueError(
                "`labels` name the scores of task='text_classifier'. Received: "
                f"labels, task={task!r}"
            )
        if isinstance(labels, Mapping):
            raise ValueError("`labels` of a task must be a list of strings")
        check_labels(labels)
        for label in labels:
            if len(label.splitlines()) > 1 or label != label.strip("\r\n"):
                raise ValueError(
                    f"`labels` must each be one line. Received: {label!r}"
                )


def is_tokenizer(layer: Any) -> bool:
    """Returns whether a layer is a WordPiece tokenizer, by its attributes."""
    return all(
        hasattr(layer, name)
        for name in ("get_vocabulary", "lowercase", "sequence_length")
    )


def check_tokenizer(layer: Any) -> None:
    """Raises `ValueError` if MediaPipe would make other ids."""
    if getattr(layer, "num_separators", None) is not None:
        raise ValueError(
            f"MediaPipe's tasks take single texts, and '{layer.name}' pairs of "
            "them. A file of ids, without `task`, takes both"
        )
    vocabulary = list(layer.get_vocabulary())
    counts = collections.Counter(vocabulary)
    repeated = sorted(token for token, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must hold each token once. "
            f"Received twice: {', '.join(map(repr, repeated))}"
        )
    broken = [token for token in vocabulary if "\n" in token or "\r" in token]
    if broken:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must hold one line per token. "
            f"Received: {broken[0]!r}"
        )
    missing = [t for t in (_UNK, _CLS, _SEP) if t not in vocabulary]
    if missing or vocabulary[0] != _PAD:
        raise ValueError(
            f"The vocabulary of '{layer.name}' must begin with [PAD], and hold "
            "[UNK], [CLS] and [SEP], which MediaPipe writes. Received: "
            + (f"no {', '.join(missing)}" if missing else f"{vocabulary[:1]}")
        )
    if not layer.lowercase:
        raise ValueError(
            f"MediaPipe lowercases each text first, and '{layer.name}' does "
            "not. Train with lowercase=True"
        )


def check_tokens(layer: Any, tokenize: Callable[[str], np.ndarray]) -> None:
    """Raises `ValueError` unless [CLS] and [SEP] are around a text."""
    vocabulary = list(layer.get_vocabulary())
    found = [vocabulary[index] for index in tokenize("")]
    if found != [_CLS, _SEP]:
        raise ValueError(
            "MediaPipe puts [CLS] before a text and [SEP] after it, and "
            f"'{layer.name}' turns an empty text into {found}"
        )


def differing(layer: Any) -> list[str]:
    """Returns which texts beyond ASCII get other ids in MediaPipe, as text."""
    normalization = getattr(layer, "normalization", None)
    names = {"bert": "normalizeBert", "tf_text": "normalize"}
    folds = "folds it first"
    if normalization in names:
        folds += (
            f" by `{names[normalization]}` of export/web/normalize.js, "
            "export/android/TextTask.kt or export/ios/TextTask.swift"
        )
    keeps, others = " and keeps accents", "capitals or accents"
    if getattr(layer, "strip_accents", None) is False:  # as MediaPipe does
        keeps, others = "", "capitals"
        folds = folds.replace("normalizeBert", "normalizeBert(text, false)")
    found = [
        f"MediaPipe lowercases only ASCII letters{keeps}: a text with other "
        f"{others} gets other ids there, unless the application {folds}: see "
        "docs/limits.md"
    ]
    if getattr(layer, "split_on_cjk", None) is False:
        found.append(
            "MediaPipe makes a word of each Chinese character, and "
            f"'{layer.name}' does not: a text with such characters gets other "
            "ids there"
        )
    return found


def lengths(limit: int | None, length: int | None) -> list[str]:
    """Returns remarks on long texts.

    Args:
        limit: The most ids that the model takes of a text; None for all.
        length: The most ids that the file takes; None for any.
    """
    if length is None and limit is None:
        return [
            "it takes texts of any length, and the memory of attention grows "
            "with the square of the length: give the tokenizer a `max_length`"
        ]
    if length is None or (limit is not None and limit <= length):
        return []
    return [
        f"texts are cut to {length} ids; the model itself takes "
        f"{limit or 'all'}, so its outputs may differ"
    ]


def check_output(task: str, signature: Signature, labels: Any) -> None:
    """Raises `ValueError` for outputs that do not fit the task or labels."""
    outputs = outputs_of(signature)
    shapes = list(outputs.values())
    if len(shapes) != 1 or len(shapes[0]) != 2:
        found = ", ".join(f"{n} of shape {s}" for n, s in outputs.items())
        raise ValueError(
            f"task='{task}' needs one output, of shape (batch, "
            f"{'classes' if task == TASKS[0] else 'dim'}). Received: {found}"
            + _remedy(task, shapes)
        )
    (output,) = keras.tree.flatten(output_of(signature.model))
    if "float" not in output.dtype:
        raise ValueError(
            f"task='{task}' needs an output of floats. Received: "
            f"{next(iter(outputs))} of dtype {output.dtype}"
        )
    if labels is not None and shapes[0][1] != len(labels):
        raise ValueError(
            f"`labels` must name each of the {shapes[0][1]} scores. Received: "
            f"{len(labels)} labels"
        )


def _remedy(task: str, shapes: Sequence[Any]) -> str:
    """Returns how one output for each token becomes one for each text."""
    if len(shapes) != 1 or len(shapes[0]) != 3:
        return ""
    return (
        ". Add a pooling to the model, such as kp.Pooling1D('mean'), or "
        "leave out `task` (--task)"
    )


IDS, MASK, SEGMENTS = "ids", "mask", "segment_ids"


@dataclasses.dataclass(frozen=True)
class TextTask:
    """The parts of a file for a MediaPipe task.

    Attributes:
        name: One of `TASKS`.
        signature: The signature of ids, mask and segments.
        vocabulary: The WordPiece tokens in the order of their ids.
        labels: The names of the scores, or None.
        text: The signature of the model itself.
        tokenize: From a text to all of its ids.
        limit: The most ids that the model takes of a text; None for all.
        notes: Which texts have other outputs in MediaPipe, and what long texts
            cost, as text.
    """

    name: str
    signature: Signature
    vocabulary: list[str]
    labels: list[str] | None
    text: Signature
    tokenize: Callable[[str], np.ndarray]
    limit: int | None
    notes: list[str]

    def probes(self, samples: Any) -> tuple[list[Any], Iterator[Probe]]:
        """Returns samples without their texts, and the probes of these texts.

        The model is run with the texts, and the file with MediaPipe's ids of
        them.
        """
        texts, others = split_texts(samples)
        return others, self._probes(texts)

    def _probes(self, texts: Sequence[str]) -> Iterator[Probe]:
        run = runner_of(self.text, Memory())
        invented = texts_beyond(self.limit)
        for is_sample, group in ((False, invented), (True, texts)):
            for text, inputs, given in self._rows(group):
                yield Probe(
                    self.signature.name,
                    inputs,
                    run(given),
                    is_sample=is_sample,
                    text=text,
                )

    def as_samples(self, samples: Any) -> list[Any]:
        """Returns samples with each text as MediaPipe's inputs.

        All have one length: calibration with several inputs needs this.
        """
        texts, found = split_texts(samples)
        rows = [row for _, row, _ in self._rows(texts)]
        longest = max((row[IDS].shape[1] for row in rows), default=0)
        return found + [
            {
                name: np.pad(ids, ((0, 0), (0, longest - ids.shape[1])))
                for name, ids in row.items()
            }
            for row in rows
        ]

    def inputs_of(self, texts: Sequence[str]) -> list[Arrays]:
        """Returns MediaPipe's inputs of each text."""
        return [row for _, row, _ in self._rows(texts)]

    def _rows(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[str, Arrays, Arrays]]:
        """Yields texts, with MediaPipe's inputs and the model's inputs of each.

        A text is left out if a signature of fixed length cuts it, and the model
        does not.
        """
        (name,) = self.text.specs
        length = self.signature.specs[IDS].shape[1]
        for text in texts:
            ids = self.tokenize(text)
            if length is not None and len(ids) > length:
                if length != self.limit:
                    continue
                ids = np.append(ids[: length - 1], ids[-1])
            row = np.zeros((1, length or len(ids)), "int32")
            row[0, : len(ids)] = ids
            given = {name: np.array([text], dtype=object)}
            yield text, _as_bert(row), given


def resolve_task(
    model: keras.Model,
    task: str,
    labels: Sequence[str] | None = None,
    signatures: Mapping[str, Any] | None = None,
) -> TextTask:
    """Returns the parts of a file for a MediaPipe task.

    Args:
        model: Takes strings, and cuts them with one WordPiece tokenizer: a
            layer with `get_vocabulary()`, `lowercase` and `sequence_length`.
        task: One of `TASKS`.
        labels: A name for each score.
        signatures: For one name the model, or a pair of it and a dict of the
            shape of `ids`. By default `(1, None)`.

    Raises:
        ValueError: The model does not fit, or MediaPipe would misread its
            vocabulary or labels.
    """
    whole, *_ = resolve_signatures(model)
    cut = from_ids(whole)
    tokenizer: Any = None
    if cut is not None and cut.cut_at is not None:
        tokenizer = layer_of(cut.cut_at)
    if cut is None or not is_tokenizer(tokenizer):
        raise ValueError(
            f"task='{task}' needs a model that takes strings and tokenizes "
            "them by WordPiece, such as with kp.WordpieceTokenizer. Received: "
            f"model '{model.name}'. Leave out `task` (--task) for a file that "
            "takes numbers, such as token ids, instead of texts"
        )
    (texts,) = sources_of(cut.cut_at)
    if not isinstance(before := layer_of(texts), keras.layers.InputLayer):
        raise ValueError(
            f"task='{task}' needs a model that tokenizes texts as they are: "
            "MediaPipe knows nothing of what changes them first. Received: "
            f"model '{model.name}' with the layer '{before.name}' before its "
            "tokenizer. Leave it out, such as by model.with_prompt('') for a "
            "prompt, and have the app put the prompt before each text"
        )
    check_tokenizer(tokenizer)
    check_output(task, whole, labels)
    # MediaPipe cuts at its own input length, so compare with uncut ids.
    config = tokenizer.get_config()
    config |= {name: None for name in LIMITS if name in config}
    uncut = type(tokenizer).from_config(config)

    def tokenize(text: str) -> np.ndarray:
        ids = uncut(np.array([text], dtype=object))
        return np.asarray(keras.ops.convert_to_numpy(ids))[0]

    check_tokens(tokenizer, tokenize)
    found = list(
        as_given({DEFAULT: model} if signatures is None else signatures)
    )
    if len(found) > 1:
        raise ValueError(
            "`signatures` must be one for a task: MediaPipe takes files of one "
            f"signature. Received: {', '.join(name for name, *_ in found)}"
        )
    ((name, given, shapes),) = found
    shape, limit = _shape(name, given, shapes, model), limit_of(tokenizer)
    return TextTask(
        name=task,
        signature=_of_bert(name, cut, shape, tokenizer),
        vocabulary=list(tokenizer.get_vocabulary()),
        labels=None if labels is None else list(labels),
        text=whole,
        tokenize=tokenize,
        limit=limit,
        notes=[*differing(tokenizer), *lengths(limit, shape[1])],
    )


def _shape(
    name: str, given: keras.Model, shapes: Mapping[str, Any], model: keras.Model
) -> tuple[int | None, ...]:
    if given is not model:
        raise ValueError(
            f"Signature '{name}': a task's signature must be its model, "
            f"'{model.name}', or a pair (model, {{'ids': shape}})"
        )
    if set(shapes) - {IDS}:
        raise ValueError(
            f"Signature '{name}': a task has a shape of 'ids' only. "
            f"Received: {', '.join(map(str, shapes))}"
        )
    spec = keras.InputSpec(shape=(None, None), dtype="int32")
    shape = narrowed(name, IDS, spec, shapes.get(IDS, (1, None))).shape
    if shape[0] != 1 or shape[1] == 1:
        raise ValueError(
            f"Signature '{name}': MediaPipe gives one text at a time, of 2 ids "
            f"or more. Received: shape {shape}"
        )
    return shape


def _of_bert(
    name: str, cut: Signature, shape: tuple[int | None, ...], tokenizer: Any
) -> Signature:
    """Returns the signature of ids, mask and segments, from that of ids."""
    ((cut_name, cut_spec),) = cut.specs.items()
    limit, fixed = limit_of(tokenizer), tokenizer.sequence_length
    if fixed is not None and shape[1] not in (None, fixed):
        raise ValueError(
            f"Signature '{name}': '{tokenizer.name}' makes {fixed} ids of "
            f"every text, so that the shape of ids is (1, {fixed}), or "
            f"(1, None). Received: shape {shape}"
        )
    if limit is not None and shape[1] is not None and shape[1] > limit:
        raise ValueError(
            f"Signature '{name}': '{tokenizer.name}' makes no more than "
            f"{limit} ids of a text. Received: shape {shape}"
        )

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        ids = tensors[IDS] * tensors[MASK]
        if limit is not None and shape[1] is None:
            # A longer text is cut to the model's length, and keeps its [SEP].
            kept = keras.ops.minimum(keras.ops.shape(ids)[1], limit) - 1
            ids = keras.ops.concatenate([ids[:, :kept], ids[:, -1:]], axis=1)
        return cut.call({cut_name: ids})

    def to_base(inputs: Arrays) -> Arrays:
        (row,) = inputs[IDS] * inputs[MASK]
        if limit is not None:
            if len(row) > limit:
                row = np.append(row[: limit - 1], row[-1])
        if fixed is not None:
            row = np.pad(row, (0, fixed - len(row)))
        return {cut_name: row[np.newaxis].astype(cut_spec.dtype)}

    spec = keras.InputSpec(shape=shape, dtype="int32")
    ids_spec = keras.InputSpec(shape=shape, dtype=cut_spec.dtype)
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


def _as_bert(ids: np.ndarray) -> Arrays:
    return {
        IDS: ids,
        MASK: (ids != 0).astype("int32"),
        SEGMENTS: np.zeros_like(ids),
    }


_METADATA = "TFLITE_METADATA"
_VOCABULARY, _LABELS = "vocab.txt", "labels.txt"
_SCORES, _VECTOR = "probability", "embedding"
# A fixed date, so that the same export has the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def require_schema() -> Any:
    """Returns MediaPipe's schema of the metadata.

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
    """Returns a LiteRT file with MediaPipe's metadata.

    Raises:
        ExportError: The file has several graphs, as loops make them.
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
    """Returns the task that a file is for, if any, made from its model.

    Args:
        model: The model.
        path: The file, which a separate process reads.
        signatures: As for `resolve_task`.
        labels: Those that the file must have, or None.

    Returns:
        The task, and the names of the file's contents that are not compared.

    Raises:
        ValueError: The model is for no task, or `labels` are given and the file
            is for none.
        ExportVerificationError: The file's vocabulary is not the model's, or
            its labels are not those given, or they cannot be read.
    """
    found = _read(path)
    if not found or "other" in found:
        check_no_labels(labels, path)
        # Metadata of another task: how it prepares texts is not known here.
        return None, ["the metadata for MediaPipe"] * ("other" in found)
    if labels is not None:
        check_task("text_classifier", labels)
    task = resolve_task(model, found["task"], labels, signatures=signatures)
    if found["vocabulary"] != task.vocabulary:
        raise ExportVerificationError(
            f"The vocabulary in '{path}' is not the one of model "
            f"'{model.name}'",
            differs=True,
        )
    if labels is None:
        return task, ["labels"] * (found["labels"] is not None)
    if found["labels"] != task.labels:
        raise ExportVerificationError(
            f"The labels in '{path}' are {found['labels'] or 'none'}, and not "
            f"those given, {task.labels}",
            differs=True,
        )
    return task, []


def check_no_labels(labels: Any, path: Path) -> None:
    """Raises `ValueError` for labels of a file that has none."""
    if labels is not None:
        raise ValueError(
            "`labels` apply to SavedModels, and to LiteRT files exported "
            f"with task='text_classifier', and '{path}' is neither"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = run_in_worker(
            read_mediapipe.__name__, str(path), limits=Limits()
        )
    except WorkerError as error:
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


_ROUNDING = 0.01  # of a sum of scores, in bfloat16 too


def verify_in_mediapipe(
    task: TextTask, file: Path, reference: Reference
) -> tuple[int, list[str]]:
    """Runs a file in MediaPipe from raw text.

    Only texts of ASCII are used, which MediaPipe and the model cut alike. Of a
    quantized file, only outputs of the samples are compared, if there are any.

    Returns:
        The number of texts, and remarks on the outputs.

    Raises:
        ExportVerificationError: MediaPipe does not load the file, or finds
            other labels in it, or its outputs are not the model's.
    """
    probes = [
        probe
        for probe in reference.probes
        if probe.text is not None and probe.text.isascii()
    ]
    try:
        found = run_in_worker(
            run_mediapipe.__name__,
            str(file.resolve()),
            task.name,
            [probe.text for probe in probes],
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
    if task.labels is not None and found["labels"] != task.labels:
        raise ExportVerificationError(
            f"MediaPipe finds the labels {found['labels']} in '{file}', and "
            f"they should be {task.labels}",
            differs=True,
        )
    ((name, _),) = reference.probes[0].outputs.items()
    pairs = [
        (probe.outputs[name], np.array([output], probe.outputs[name].dtype))
        for probe, output in zip(probes, found["outputs"], strict=True)
        if reference.quantization is None
        or any(probe is each for each in reference.held)
    ]
    _check_outputs(task.signature.name, name, pairs, reference)
    notes = [*task.notes, *_scores(task, reference)]
    if not any(found.get("labels", [True])):
        notes.append(
            "no labels: an application gets numbers instead of names. Give "
            "the export `labels` (--labels)"
        )
    return len(pairs), notes


def _check_outputs(
    signature: str,
    name: str,
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    reference: Reference,
) -> None:
    """Raises `ExportVerificationError` if MediaPipe's outputs are others.

    Args:
        signature: The name of the signature.
        name: The name of its output.
        pairs: The model's output and MediaPipe's, of each text.
        reference: The model's outputs with their limits.
    """
    if not pairs:
        return
    wrong, scales = None, reference.scales[signature]
    is_exact = reference.quantization is None
    worst = max(
        (difference({name: x}, {name: y}, scales) for x, y in pairs),
        key=lambda each: each.largest_difference,
    )
    most = reference.tolerance if is_exact else sys.float_info.max
    if not worst.largest_difference <= most:
        wrong = (
            f"largest difference {worst.largest_difference:.3g} (allowed "
            f"{reference.tolerance:.3g}) in {worst.where}"
        )
    elif not is_exact:
        quality = quality_of(reference.kinds[signature][name], pairs)
        if quality is not None and quality.too_low(reference.limits):
            wrong = quality.text(reference.limits)
    if wrong is not None:
        raise ExportVerificationError(
            f"MediaPipe's outputs differ from the model's: {wrong}",
            differs=True,
        )


def _scores(task: TextTask, reference: Reference) -> list[str]:
    """Returns a remark on scores that are no probabilities, or no vector."""
    rows = np.concatenate(
        [each for probe in reference.probes for each in probe.outputs.values()]
    ).astype("float64")
    rows = rows[np.isfinite(rows).all(axis=-1)]
    if task.name != "text_classifier":
        is_one = np.abs(rows.sum(axis=-1) - 1) < 1e-3
        if np.all(is_one) and np.all(rows >= 0) and rows.shape[-1] > 1:
            return [
                "the output ends in a softmax: these are scores, not an "
                "embedding. Export the model without its last layer"
            ]
        return []
    if np.any((rows < -_ROUNDING) | (rows > 1 + _ROUNDING)):
        return [
            "scores are not all from 0 to 1, but applications read them as "
            "probabilities: end the model with softmax"
        ]
    if np.any(np.abs(rows.sum(axis=-1) - 1) > _ROUNDING):
        return [
            "scores do not add up to 1: correct if several labels can apply "
            "at once; otherwise end the model with softmax"
        ]
    return []
