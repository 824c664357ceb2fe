"""Compares an exported file with its Keras model, whatever its format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export import pipeline
from keras_posenc.export.formats.litert import LiteRT
from keras_posenc.export.formats.litert_recipe import recipe_of
from keras_posenc.export.formats.mediapipe import check_no_labels
from keras_posenc.export.formats.onnx import Onnx
from keras_posenc.export.formats.saved_model import SavedModel
from keras_posenc.export.litertlm import verify_litertlm
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.versions import check_no_pattern


def verify_with_model(
    path: Path,
    kind: str,
    model: keras.Model,
    *,
    signatures: Mapping[str, Any] | None,
    labels: Any,
    quantization: Any,
    **options: Any,
) -> VerificationReport:
    """Runs `verify` with a model, on a file of a kind that `locate` names."""
    if quantization is not None:
        if kind not in ("litert", "litertlm") or quantization in MODES:
            raise ValueError(
                "`quantization` (--quantization) is the recipe of a LiteRT "
                "file or a package, and modes are read from the file: leave it "
                f"out. Received: quantization={quantization!r:.80}, "
                f"path='{path}'"
            )
        quantization = recipe_of(quantization)
    arguments = {"given": signatures, **options}
    if kind == "litertlm":
        check_no_labels(labels, path)
        given = (signatures, options["max_length"])
        names = ("signatures", "max_length")
        for name, value in zip(names, given, strict=True):
            if value is not None:
                raise ValueError(
                    f"`{name}` must be None for a LiteRT-LM package, whose "
                    "signatures and inputs are the engine's. Received: "
                    f"{name}, path='{path}'"
                )
        return verify_litertlm(model, path, arguments, quantization)
    format: pipeline.Format
    if kind == "saved_model":
        check_no_pattern(path)
        format = SavedModel(labels=labels, **arguments)
    elif kind == "litert":
        format = LiteRT(labels=labels, mode=quantization, **arguments)
    else:
        check_no_labels(labels, path)
        format = Onnx(**arguments)
    return pipeline.verify(model, format, path)
