"""Models as LiteRT (.tflite) files for mobile devices and the web."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import require_tensorflow_backend
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.mediapipe import check_task, require_schema
from keras_posenc.export.pipeline import export
from keras_posenc.export.publish import check_file
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.signatures.resolve import check_model


def export_litert(
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    quantization: str | None = None,
    representative: Any = None,
    task: str | None = None,
    labels: Sequence[str] | None = None,
    allow_flex: bool = False,
    allow_operators: Sequence[str] = (),
    verify: bool = True,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    agreement: float | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a Keras model as a LiteRT file and proves that it is right.

    The file uses LiteRT's builtin operators alone, so that it runs in the
    plain runtime of any platform. It appears in one step, after a fresh
    process without Keras or TensorFlow has loaded it and given the model's own
    answers. A model under a mixed policy goes out in float32, and is compared
    with what it answers in float32; the report says so.
    `model` is not changed. The weights are those at the call, so another thread
    may train it meanwhile; but call this between two steps, or from a callback,
    or some weights may be from before an update and some from after it.
    A model of a mixed policy, or one that Keras quantized, must rest until the
    export ends.

    Args:
        model: Any built Keras model. One that takes strings is exported from
            what they become: the model is cut at the first numeric tensor of
            each, which is named `ids` or `features` where there is nothing
            else, and after its string input where there is.
        path: The file, ending in `.tflite`. An earlier one is replaced; the
            folder is made if need be.
        signatures: As for `export_saved_model`. By default
            `serving_default`, with dynamic batch and length. Further ones
            with static shapes share the weights.
        quantization: None, for float32 (or, where the model went through
            `quantize("int8")`, for the very numbers that Keras computes);
            `"float16"`, for weights of half the size; `"int8"`, of a quarter,
            with products in 8 bits; or
            `"int8-static"`, where the range of what goes into a product is
            fixed by `representative`, for hardware that wants it so. Inputs
            and outputs stay as they are, and so does all between the
            products: positions, norms, scores.
        representative: What to calibrate `"int8-static"` with: an array, a
            dict of arrays by input name, or a list of these; some hundred
            real inputs, in batches that fit each signature. They are samples
            to verify with, too: the file is held to its tolerance on these.
        task: `"text_classifier"` or `"text_embedder"`: the file is then one
            that MediaPipe's task of that name takes as it is, from raw text,
            on Android, iOS and the web. The model takes strings by a
            `WordpieceTokenizer`, and has one output. The file's inputs are
            `ids`, `mask` and `segment_ids`, of one text at a time; of any
            length, unless `signatures` gives a shape of the `ids`, such as
            `{"serving_default": (model, {"ids": (1, 128)})}`: one, for
            MediaPipe takes no file of several, and of no model with loops or
            branches. Verified in MediaPipe, too. Needs the extra `mediapipe`.
        labels: The names of a text classifier's scores, in their order.
        allow_flex: Whether operators may be TensorFlow's own. The file then
            needs a runtime with the Flex delegate.
        allow_operators: Names of custom operators, and of TensorFlow's, that it
            may have; see `export_saved_model`.
        verify: Whether to verify before publishing.
        samples: Inputs to verify with; see `verify`.
        max_length: The longest sequence to verify with; see `verify`.
        tolerance: The largest difference from the model's own answer; by
            default 1e-5, and more for a quantized file: see `verify`.
        agreement: How often a quantized file's largest score must be the
            model's, by default in 0.99 of decided rows; see `verify`.
        verbose: Whether to show progress; 2 also shows what native code logs.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ValueError: An argument that is none of the above.
        ExportError: The model needs operators that LiteRT lacks, or has
            quantized or low-precision weights, or more than 2 GB of them, or
            the file cannot be written.
        ExportVerificationError: The file's outputs are not the model's, or
            the model's own change by being run.
            Nothing is left behind.

    Example:
    >>> import pathlib, tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32", name="ids"),
    ...     keras.layers.Embedding(100, 8, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ... ])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     artifact = kp.export_litert(
    ...         model,
    ...         pathlib.Path(folder) / "model.tflite",
    ...         max_length=16,
    ...         verbose=False,
    ...     )
    ...     artifact.path.name
    'model.tflite'
    """
    require_tensorflow_backend("export_litert")
    check_model(model)
    check_task(task, labels)
    if task is not None:
        require_schema()
    path = check_file(path, ".tflite")
    return export(
        model,
        LiteRT(
            path=path,
            mode=quantization,
            representative=representative,
            task_name=task,
            labels=labels,
            allow_flex=allow_flex,
            given=signatures,
            samples=samples,
            max_length=max_length,
            tolerance=tolerance,
            agreement=agreement,
            allow_operators=allow_operators,
            verify=verify,
            verbose=verbose,
        ),
        path.parent,
    )
