"""Models as ONNX files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import require_tensorflow_backend
from keras_posenc.export.formats.onnx import Onnx
from keras_posenc.export.formats.onnx_convert import require_onnx
from keras_posenc.export.pipeline import export
from keras_posenc.export.publish import check_file
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.signatures.resolve import check_model


def export_onnx(
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    verify: bool = True,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a Keras model as an ONNX file and proves that it is right.

    The file appears in one step, after a fresh process without Keras or
    TensorFlow has loaded it in ONNX Runtime and given the model's own answers.
    Batch and length stay dynamic; inputs and outputs have the model's names
    (but an output that is called as an input is, such as `ids`, is
    `output_ids`), and its weights stand in the file bit for bit, by their paths
    in the model: `verify` compares them, and all other numbers of the file.
    `model` is not changed. The weights are those at the call, so another thread
    may train it meanwhile; but call this between two steps, or from a callback,
    or some weights may be from before an update and some from after it.
    A model of a mixed policy, or one that Keras quantized, must rest until the
    export ends. Needs the extra `onnx`.

    Args:
        model: Any built Keras model. One that takes strings is exported from
            what they become: see `export_litert`.
        path: The file, ending in `.onnx`. An earlier one is replaced; the
            folder is made if need be.
        signatures: As for `export_litert`, but one: an ONNX file has no more.
            With the shape of each input every shape in the file is known, as
            importers want it that plan for one.
        verify: Whether to verify before publishing.
        samples: Inputs to verify with; see `verify`.
        max_length: The longest sequence to verify with; see `verify`.
        tolerance: The largest difference from the model's own answer; see
            `verify`.
        verbose: Whether to show progress; 2 also shows what native code logs.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ImportError: The extra `onnx` is not installed.
        ValueError: An argument that is none of the above.
        ExportError: The model cannot be converted, needs operators that ONNX
            lacks, has weights of more than 2 GB, or takes other inputs once
            converted; or the file cannot be written.
        ExportVerificationError: The file's outputs are not the model's, or
            the model's own change by being run.
            Nothing is left behind.
    """
    require_tensorflow_backend("export_onnx")
    check_model(model)
    require_onnx()
    path = check_file(path, ".onnx")
    return export(
        model,
        Onnx(
            path=path,
            given=signatures,
            samples=samples,
            max_length=max_length,
            tolerance=tolerance,
            verify=verify,
            verbose=verbose,
        ),
        path.parent,
    )
