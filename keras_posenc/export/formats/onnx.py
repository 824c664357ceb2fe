"""The format ONNX, for the pipeline."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_posenc.export.formats.compare_conversion import (
    compare_with_conversion,
)
from keras_posenc.export.formats.onnx_convert import (
    convert,
    with_distinct_names,
)
from keras_posenc.export.graphs.float32 import to_float32
from keras_posenc.export.graphs.keras_int8 import is_quantized
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Format
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.signatures.resolve import resolve_numeric_signatures
from keras_posenc.export.signatures.sizes import check_size


@dataclasses.dataclass(kw_only=True)
class Onnx(Format):
    """An ONNX file of one signature."""

    writing: ClassVar[str] = "Converting to ONNX"

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signature, and renames outputs with names of inputs."""
        self.signatures = with_distinct_names(
            resolve_numeric_signatures(model, self.given)
        )
        if found is None:
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
        self.in_float32 = to_float32(self.signatures, self.frozen)
        if is_quantized(self.signatures):
            self.quantization = BY_KERAS

    def write(self, path: Path) -> None:
        """Converts the model with tf2onnx."""
        (signature,) = self.signatures
        convert(signature, path, self.frozen)

    def compare_contents(
        self, reference: Reference, found: Inspection, response: Any, own: Any
    ) -> tuple[list[str], list[str], list[str]]:
        """Compares the file with a new conversion of the model."""
        return compare_with_conversion(reference, found, self.frozen)
