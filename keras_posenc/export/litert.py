"""Export to LiteRT (.tflite) files for mobile devices and the web."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.arguments import shares_arguments
from keras_posenc.export.errors import check_model
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.mediapipe import check_task, require_schema
from keras_posenc.export.pipeline import export
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.versions import check_file


@shares_arguments
def export_litert(  # noqa: D417
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    quantization: str | Path | Sequence[Mapping[str, Any]] | None = None,
    task: str | None = None,
    labels: Sequence[str] | None = None,
    allow_operators: Sequence[str] = (),
    verify: bool = True,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    limits: Mapping[str, float] | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a Keras model as a LiteRT file and verifies it.

    >>> import pathlib, tempfile
    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([
    ...     keras.Input((None,), dtype="int32", name="ids"),
    ...     keras.layers.Embedding(100, 8, mask_zero=True),
    ...     kp.PositionalEncoding(),
    ... ])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     exported = kp.export_litert(
    ...         model,
    ...         pathlib.Path(folder) / "model.tflite",
    ...         max_length=16,
    ...         verbose=False,
    ...     )
    ...     exported.path.name
    'model.tflite'

    The file uses only LiteRT's builtin operators, so it runs in the plain
    runtime of any platform. It appears in one step, after a fresh process
    without Keras or TensorFlow has loaded it and reproduced the model's
    outputs. A model of mixed precision is exported in float32, and compared
    with its outputs in float32; the report says so.

    A model that takes strings is cut after them: its inputs in the file are its
    first numeric tensors, named `ids` or `features` if there is only one, else
    after the string inputs.

    Args:
        path: The file, ending in `.tflite`. An earlier file is replaced; the
            folder is made if missing.
        signatures: As for `export_saved_model`. By default `serving_default`,
            with dynamic batch and length; a quantized `Generator` has `score`
            too, with which its loss is measured, and the `ended` of any one is
            int32, since LiteRT.js takes no bools. Further signatures share the
            weights.
        quantization: None, for float32; `"float16"`, for weights of half the
            size; `"int8"`, of a quarter, with products in 8 bits;
            `"int8-weights"`, of a quarter, with products in float32;
            `"int8-static"`, as `"int8"`, with ranges of numbers that are fixed
            by running the `samples`, for hardware that needs them; or `"int4"`,
            of a seventh, in blocks of 32 numbers. Inputs and outputs stay as
            they are, and so does everything between the products: positions,
            norms, scores.
            Or a recipe of ai-edge-quantizer: a list of dicts, or the path of
            its JSON file. `"int8-static"`, `"int4"` and recipes need the extra
            `quantize`. `quantize` finds the smallest file that keeps a share of
            the model's quality.
        task: `"text_classifier"` or `"text_embedder"`: the file is then one
            that MediaPipe's task of that name takes, from raw text, on Android,
            iOS and the web. The model takes strings by a `WordpieceTokenizer`,
            and has one output. The file's inputs are `ids`, `mask` and
            `segment_ids`, of one text at a time; of any length, unless
            `signatures` gives a shape of the `ids`, such as
            `{"serving_default": (model, {"ids": (1, 128)})}`. MediaPipe takes
            one signature, without loops or branches. The file is verified in
            MediaPipe too. Needs the extra `mediapipe`.
        labels: Names of a text classifier's scores, in their order.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ValueError: An argument that is none of the above.
        ImportError: An extra is needed that is not installed.
        ExportError: The model needs operators that LiteRT lacks, has quantized
            or low-precision weights, or more than 2 GB of them, or the file
            cannot be written.
        ExportVerificationError: The file's outputs are not the model's, or the
            model's own outputs change from run to run. No file is left.
    """
    check_model(model, "export_litert")
    check_task(task, labels)
    if task is not None:
        require_schema()
    path = check_file(path, ".tflite")
    return export(
        model,
        LiteRT(
            path=path,
            mode=quantization,
            task_name=task,
            labels=labels,
            given=signatures,
            samples=samples,
            max_length=max_length,
            tolerance=tolerance,
            limits=limits,
            allow_operators=allow_operators,
            verify=verify,
            verbose=verbose,
        ),
        path.parent,
    )
