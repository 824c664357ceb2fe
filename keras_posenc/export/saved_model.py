"""Models as SavedModel version folders, as TensorFlow Serving reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import require_tensorflow_backend
from keras_posenc.export.formats.saved_model import SavedModel
from keras_posenc.export.pipeline import export
from keras_posenc.export.publish import (
    as_path,
    check_base,
    check_free,
    check_keep,
    check_version,
)
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.signatures.resolve import check_model


def export_saved_model(
    model: keras.Model,
    base_path: str | Path,
    *,
    version: int | None = None,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
    compiled: Any = None,
    warmup: Any = None,
    batching: Any = None,
    keep: int | None = None,
    allow_operators: Sequence[str] = (),
    verify: bool = True,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a Keras model as a SavedModel and proves that it is right.

    The folder `base_path/<version>/` appears in one step, after a fresh
    process without Keras has loaded it and given the model's own answers. Each
    weight is stored once. `MODEL_CARD.md` in it describes every signature,
    with a request to copy. If the process is killed, or the disk is full,
    there is no new version, and the next export removes what was begun.
    `model` is not changed. The weights are those at the call, so another thread
    may train it meanwhile; but call this between two steps, or from a callback,
    or some weights may be from before an update and some from after it.

    Args:
        model: Any built Keras model.
        base_path: The folder of all versions of the model; made if need be.
        version: An integer above 0; the next free one by default. An existing
            version is never touched.
        signatures: Entry points by name: each a Keras model (which may share
            layers with the others), or a pair of a model and a dict of shapes
            (or of `keras.InputSpec`s, for a model that does not know its
            inputs) by input name. By default `serving_default`, the model;
            `from_ids`, from `ids` and `lengths`, where the model takes strings
            (it is cut at its first numeric tensor) or a sequence of ids and
            nothing else: ids at or past their row's length become padding, so
            that a server may pad with anything; and `encode`, the `contextual`
            and `pooled` embeddings from the inputs of the model (with the
            `mask` of the former, if Keras gives it one), where one operation of
            it makes a `(batch, dim)` out of a `(batch, seq, dim)`. The last two
            are left out where no `Embedding` nor `samples` say which ids there
            are. A model that is no graph is given its inputs by the names of
            its `call`'s arguments where they are such, else as it was built:
            one tensor, a list, or a dict. Without shapes it takes those of the
            floats that it was called with, in a batch of any size. The names of
            a model's inputs, and the keys of its output dict (else the names
            of its output layers), are the names in the artifact. Batch and
            length stay dynamic unless the model or a shape fixes them.
        labels: The names of a classifier's classes, in the order of its
            scores, `(batch, classes)` or `(batch, seq, classes)`; a dict of
            such lists by output where it has several. They become two outputs
            of strings beside the scores: `classes`, of their shape and in
            their order, and `label`, the class of the highest; of a dict,
            `<output>_classes` and `<output>_label`.
        compiled: What XLA compiles, so that short texts take less time: True,
            or a dict of `lengths` (16, 32, 64 and 128 by default) and
            `batch_sizes` (1). Ids are padded to the next of these inside the
            signature, and there is a program for each length with each batch
            size, which is made as it is first asked for: let `warmup` ask.
            What is larger than the last of them is answered uncompiled.
            Tokenizers stay outside. What XLA cannot compile is refused:
            generators, lookups, strings as answers. TensorFlow Serving needs
            `--xla_cpu_compilation_enabled`.
        warmup: Requests that a server answers to itself when it loads the
            version, at most 1000: True for the inputs that the export is
            verified with, except extreme ones, or a list of samples, each for
            every signature that takes it. They become
            `assets.extra/tf_serving_warmup_requests`, which verification
            replays. Needs the extra `serving`.
        batching: How a server may put requests together: True, or a dict of
            `max_batch_size`, `allowed_batch_sizes` (by default the powers of
            two up to it), `batch_timeout_micros`, `max_enqueued_batches`, and
            `max_execution_batch_size`, into batches of which larger requests
            are split. By default 32 rows, and 1000 µs. A request of more rows
            than `max_batch_size` is refused by the server, so warm-up requests
            are written in parts of it. They become `batching_params.pbtxt`,
            with padding of rows that differ in length; `MODEL_CARD.md` says
            which signatures that suits.
        keep: How many versions to keep, this one included; all by default.
            The lowest go once this one is there, but never the one that was
            the highest until then: a server answers from it until it has
            loaded the next.
        allow_operators: Names of operators that it may have beside those that
            are known to compute and do nothing else; see `operators.py`.
        verify: Whether to verify before publishing.
        samples: Inputs to verify with; see `verify`.
        max_length: The longest sequence to verify with; see `verify`.
        tolerance: The largest difference from the model's own answer.
        verbose: Whether to show progress; 2 also shows what native code logs.

    Returns:
        An `ExportedModel`: its `path`, the version folder, and its `report`.

    Raises:
        ValueError: An argument that is none of the above.
        FileExistsError: The version exists.
        ExportError: The model cannot be saved, or the folder not written.
        ExportVerificationError: The artifact's outputs are not the model's, or
            the model's own change by being run.
            Nothing is left behind.

    Example:
    >>> import tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32", name="ids"),
    ...     keras.layers.Embedding(100, 8, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ... ])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     artifact = kp.export_saved_model(
    ...         model, folder, max_length=16, verbose=False
    ...     )
    ...     artifact.path.name
    '1'
    """
    require_tensorflow_backend("export_saved_model")
    check_model(model)
    check_keep(keep)
    path = as_path("base_path", base_path)
    if path.suffix == ".tflite":
        raise ValueError(
            "`base_path` must be the folder of a model's versions; a "
            "LiteRT file is written by export_litert. Received: "
            f"base_path='{path}'"
        )
    check_base(path)
    if version is not None:
        version = check_version(version, or_none=", or None")
        check_free(path, version)
    return export(
        model,
        SavedModel(
            path=path,
            version=version,
            keep=keep,
            labels=labels,
            compiled=compiled,
            warmup=warmup,
            batching=batching,
            given=signatures,
            samples=samples,
            max_length=max_length,
            tolerance=tolerance,
            allow_operators=allow_operators,
            verify=verify,
            verbose=verbose,
        ),
        path,
    )
