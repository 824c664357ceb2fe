"""Export to SavedModel version folders, as TensorFlow Serving reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.arguments import shares_arguments
from keras_posenc.export.errors import check_model
from keras_posenc.export.formats.saved_model import SavedModel
from keras_posenc.export.pipeline import export
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.versions import (
    check_base,
    check_free,
    check_keep,
    check_version,
)
from keras_posenc.publish import as_path


@shares_arguments
def export_saved_model(  # noqa: D417
    model: keras.Model,
    base_path: str | Path,
    *,
    version: int | None = None,
    signatures: Mapping[str, Any] | None = None,
    labels: Any = None,
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
    """Exports a Keras model as a SavedModel and verifies it.

    >>> import tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32", name="ids"),
    ...     keras.layers.Embedding(100, 8, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ... ])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     exported = kp.export_saved_model(
    ...         model, folder, max_length=16, verbose=False
    ...     )
    ...     exported.path.name
    '1'

    The folder `base_path/<version>/` appears in one step, after a fresh process
    without Keras has loaded it and reproduced the model's outputs. Each weight
    is stored once. Its `MODEL_CARD.md` describes every signature, with requests
    to copy. If the process is killed or the disk is full, no new version
    appears, and the next export removes the unfinished one.

    Args:
        base_path: The folder of all versions of the model; made if missing.
        version: An integer above 0; the next free one by default. An existing
            version is never changed.
        signatures: Entry points by name: each a Keras model (which may share
            layers with the others), or a pair of a model and a dict of shapes
            (or of `keras.InputSpec`s, for a model that does not know its
            inputs) by input name. By default `serving_default`, the model;
            `from_ids`, with inputs `ids` and `lengths`, if the model takes
            strings (it is cut at its first numeric tensor) or only a sequence
            of ids limited by an `Embedding` or by `samples`: ids at or past an
            example's length become padding, so that a server may pad with any
            value; and `encode_query` and `encode_document` of a
            `PretrainedModel` with prompts. A subclassed model gets its inputs
            by the names of its `call`'s arguments if they match, else as it was
            built: one tensor, a list, or a dict. Without shapes it takes the
            float shapes that it was called with, in a batch of any size. Input
            names, and the keys of its output dict (else the names of its output
            layers), are the names in the exported model. Batch and length stay
            dynamic unless the model or a shape fixes them.
        labels: Names of a classifier's classes, in the order of its scores,
            `(batch, classes)` or `(batch, seq, classes)`; a dict of such lists
            by output if it has several. They add two outputs of strings:
            `classes`, of the scores' shape and order, and `label`, the class of
            the highest score; for a dict, `<output>_classes` and
            `<output>_label`. One probability, such as a sigmoid's, takes two
            names: it is that of the second, which is `label` from 0.5 on.
        warmup: Requests that a server runs when it loads the version, at most
            1,000: True for the inputs of the verification, except extreme ones,
            or a list of samples, each for every signature that takes it. They
            become `assets.extra/tf_serving_warmup_requests`, which the
            verification replays. Needs the extra `serving`.
        batching: How a server may combine requests: True, or a dict of
            `max_batch_size`, `allowed_batch_sizes` (by default the powers of
            two up to it), `batch_timeout_micros` and `max_enqueued_batches`. By
            default 32 examples, and 1,000 µs. The server refuses larger
            requests. They become `batching_params.pbtxt`, which pads examples
            of different lengths; `MODEL_CARD.md` says for which signatures that
            is correct.
        keep: Number of versions to keep, this one included; all by default. The
            lowest are removed once this one has appeared, but never the one
            that was the highest until then: a server uses it until it has
            loaded the next.

    Returns:
        An `ExportedModel`: its `path`, the version folder, and its `report`.

    Raises:
        ValueError: An argument that is none of the above.
        FileExistsError: The version exists.
        ExportError: The model cannot be saved, or the folder not written.
        ExportVerificationError: The exported model's outputs are not the
            model's, or the model's own outputs change from run to run. No
            file is left.
    """
    check_model(model, "export_saved_model")
    import tensorflow as tf

    check_keep(keep)
    path = as_path("base_path", base_path)
    if path.suffix == ".tflite":
        raise ValueError(
            "`base_path` must be the folder of a model's versions; a "
            "LiteRT file is written by export_litert. Received: "
            f"base_path='{path}'"
        )
    check_base(path)
    if tf.config.functions_run_eagerly():
        raise ValueError(
            "A SavedModel holds graphs, and TensorFlow makes none after "
            "tf.config.run_functions_eagerly(True). Call "
            "tf.config.run_functions_eagerly(False) before the export"
        )
    if version is not None:
        version = check_version(version)
        check_free(path, version)
    return export(
        model,
        SavedModel(
            path=path,
            version=version,
            keep=keep,
            labels=labels,
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
