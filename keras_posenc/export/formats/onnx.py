"""The format ONNX, for the pipeline."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import keras

from keras_posenc.export.formats.onnx_convert import (
    convert,
    with_distinct_names,
)
from keras_posenc.export.formats.onnx_quantize import check_mode
from keras_posenc.export.graphs.float32 import to_float32
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Format
from keras_posenc.export.signatures.resolve import resolve_numeric_signatures
from keras_posenc.export.signatures.sizes import check_size
from keras_posenc.export.units import some


@dataclasses.dataclass(kw_only=True)
class Onnx(Format):
    """An ONNX file of one signature.

    The arguments are those of `export_onnx`.
    """

    mode: str | None = None
    writing: ClassVar[str] = "Converting to ONNX"

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signature, and renames outputs with names of inputs."""
        found_in_model = resolve_numeric_signatures(model, self.given)
        self.signatures = [*map(with_distinct_names, found_in_model)]
        if found is not None:
            self.mode = found.quantization
        else:
            check_mode(self.mode)
            if len(self.signatures) != 1:
                raise ValueError(
                    "`signatures` must be one for an ONNX file. Received: "
                    f"{', '.join(each.name for each in self.signatures)}"
                )
            check_size(
                self.signatures,
                "ONNX",
                "export_saved_model keeps them in files of their own",
            )
        self.in_float32 = to_float32(self.signatures, self.frozen, "onnx")
        self.quantization = self.mode

    def write(self, path: Path) -> None:
        """Converts the model with tf2onnx."""
        (signature,) = self.signatures
        kept = convert(
            signature,
            path,
            self.frozen,
            self.mode,
        )
        if kept:
            self.left_out = [
                *self.left_out,
                f"{self.mode} leaves in float32: {some(kept)}. Quantized are "
                "tables that are looked up and matrices of products, outside "
                "of loops",
            ]
