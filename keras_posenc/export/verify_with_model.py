"""Compares an exported file with its Keras model, whatever its format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export import pipeline
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.mediapipe import check_no_labels
from keras_posenc.export.formats.onnx import Onnx
from keras_posenc.export.formats.saved_model import SavedModel
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.versions import check_no_pattern


def verify_with_model(
    path: Path,
    kind: str,
    model: keras.Model,
    *,
    signatures: Mapping[str, Any] | None,
    labels: Any,
    **options: Any,
) -> VerificationReport:
    """Runs `verify` with a model, on a file of a kind that `locate` names."""
    if kind == "litertlm":
        raise ValueError(
            f"'{path}' is a LiteRT-LM package, which is verified by its cases: "
            "leave the model out. To compare it with a model, export that again"
        )
    arguments = {"given": signatures, **options}
    format: pipeline.Format
    if kind == "saved_model":
        check_no_pattern(path)
        format = SavedModel(labels=labels, **arguments)
    elif kind == "litert":
        format = LiteRT(labels=labels, **arguments)
    else:
        check_no_labels(labels, path)
        format = Onnx(**arguments)
    return pipeline.verify(model, format, path)
