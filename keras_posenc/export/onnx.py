"""Export to ONNX files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.arguments import shares_arguments
from keras_posenc.export.errors import check_model
from keras_posenc.export.formats.onnx import Onnx, require_onnx
from keras_posenc.export.pipeline import export
from keras_posenc.export.report import ExportedModel
from keras_posenc.export.versions import check_file


@shares_arguments
def export_onnx(  # noqa: D417
    model: keras.Model,
    path: str | Path,
    *,
    signatures: Mapping[str, Any] | None = None,
    quantization: str | None = None,
    verify: bool = True,
    samples: Any = None,
    max_length: int | None = None,
    tolerance: float | None = None,
    limits: Mapping[str, float] | None = None,
    verbose: int = True,
) -> ExportedModel:
    """Exports a Keras model as an ONNX file and verifies it.

    >>> import keras
    >>> import keras_posenc as kp
    >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    >>> exported = kp.export_onnx(model, "model.onnx")  # doctest: +SKIP

    The file appears in one step, after a fresh process without Keras or
    TensorFlow has loaded it in ONNX Runtime and reproduced the model's outputs.
    Batch and length stay dynamic. Inputs and outputs have the model's names,
    except that an output with the name of an input, such as `ids`, becomes
    `output_ids`. Weights are stored bit for bit, by their paths in the model,
    unless they are quantized.

    A model that takes strings is cut after them, as by `export_litert`. Needs
    the extra `onnx`.

    Args:
        path: The file, ending in `.onnx`. An earlier file is replaced; the
            folder is made if missing.
        signatures: As for `export_litert`, but only one: an ONNX file has no
            more. If the shape of each input is given, every shape in the file
            is static, as some importers require.
        quantization: None, for float32; or `"int8"`, by ONNX Runtime's own
            quantizer: weights of a quarter of the size, and products in 8 bits.
            Each run finds the range of a product's inputs from all of them, so
            an example's outputs depend a little on the others in its batch, and
            on padding. Quantized are the matrices of products outside of
            loops, and tables if the model has no loop; the report names what is
            left. The file has operators of the ONNX standard only.

    Returns:
        An `ExportedModel`: its `path` and its `report`.

    Raises:
        ImportError: The extra `onnx` is not installed.
        ValueError: An argument that is none of the above.
        ExportError: The model cannot be converted, needs operators that ONNX
            lacks, has weights of more than 2 GB, or has other inputs once
            converted; or the file cannot be written.
        ExportVerificationError: The file's outputs are not the model's, or the
            model's own outputs change from run to run. No file is left.
    """
    check_model(model, "export_onnx")
    require_onnx()
    path = check_file(path, ".onnx")
    return export(
        model,
        Onnx(
            path=path,
            mode=quantization,
            given=signatures,
            samples=samples,
            max_length=max_length,
            tolerance=tolerance,
            limits=limits,
            verify=verify,
            verbose=verbose,
        ),
        path.parent,
    )
