"""What is LiteRT's own in an export and a verification."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.formats import litert_proof
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litert_quantize import (
    check_quantization,
    refuse_loops,
)
from keras_posenc.export.formats.mediapipe import (
    TextTask,
    packed_task,
    resolve_task,
    verify_in_mediapipe,
    with_metadata,
)
from keras_posenc.export.graphs.float32 import to_float32
from keras_posenc.export.graphs.keras_int8 import is_quantized
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.pipeline import Format, Request, Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import BY_KERAS
from keras_posenc.export.publish import writing_to
from keras_posenc.export.signatures.resolve import resolve_numeric_signatures
from keras_posenc.export.signatures.sizes import check_size
from keras_posenc.export.worker_client import ask, limits_of
from keras_posenc.keras_internals import layers_within


class LiteRT(Format):
    """A LiteRT file, of any signatures of numbers, or for a MediaPipe task.

    The arguments are those of `export_litert`; a verification has `labels`.
    """

    kind = "litert"
    writing = "Converting to LiteRT"

    def __init__(
        self,
        path: Path | None = None,
        *,
        quantization: str | None = None,
        representative: Any = None,
        task: str | None = None,
        labels: Sequence[str] | None = None,
        allow_flex: bool = False,
    ) -> None:
        self.path = path
        self._mode = quantization
        self._representative = representative
        self._task_name = task
        self._labels = labels
        self._allow_flex = allow_flex
        self._task: TextTask | None = None

    def resolve(
        self,
        model: keras.Model,
        request: Request,
        inspection: Inspection | None = None,
    ) -> None:
        """Finds the signatures, and the task if the file is for one."""
        if inspection is not None:
            self._mode = inspection.quantization
            self._task, self.unverified = packed_task(
                model, inspection.path, request.signatures, self._labels
            )
        elif self._task_name is not None:
            self._task = resolve_task(
                model, self._task_name, self._labels, request.signatures
            )
        if self._task is None:
            self.samples = request.samples
            self.signatures = resolve_numeric_signatures(
                model, request.signatures
            )
        else:
            self.samples, self.extra = self._task.probes(request.samples)
            self.signatures = [self._task.signature]
        if inspection is None:
            self._check()
        self.in_float32 = to_float32(self.signatures)
        if inspection is None and self._mode == "int8-static":
            refuse_loops(self.signatures)
        self.quantization = self._mode
        if is_quantized(self.signatures):
            self.quantization = BY_KERAS

    def _check(self) -> None:
        """Raises an error for what LiteRT cannot hold, or not be made of."""
        for signature in self.signatures:
            for layer in layers_within(signature.model):
                if layer.variable_dtype == "float64" and layer.weights:
                    raise ExportError(
                        f"Layer '{layer.path or layer.name}' has weights of "
                        "float64, and LiteRT computes in float32. Rebuild the "
                        "model with the dtype policy 'float32'"
                    )
        check_size(
            self.signatures,
            "LiteRT",
            "quantization='int8' divides them by 4, and export_saved_model "
            "keeps them in files of their own",
            # The other modes begin with a file of float32.
            0.25 if self._mode == "int8" else 1.0,
        )
        if self._task is not None and self._representative is not None:
            self._representative = self._task.as_samples(self._representative)
        # What it is calibrated with must be right, too.
        self.fitted = check_quantization(
            self._mode, self._representative, self.signatures
        )
        if is_quantized(self.signatures) and self._mode is not None:
            raise ValueError(
                "`quantization` must be None for a model that went through "
                f"quantize(). Received: quantization={self._mode!r}"
            )

    def write(self, path: Path) -> None:
        """Converts the model by TensorFlow's converter."""
        content = convert(
            self.signatures, self._mode, self.fitted, self._allow_flex
        )
        if self._task is not None:
            content = with_metadata(content, self._task)
        with writing_to(path.parent):
            path.write_bytes(content)

    def run(
        self, reference: Reference, inspection: Inspection
    ) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Runs the file, by TensorFlow's interpreter if it has a Flex part."""
        foreign = inspection.foreign_operators
        response, outputs = ask(
            "litert_flex" if foreign else self.kind,
            inspection.path,
            reference.probes,
            limits_of(reference, inspection),
            runtime=None,
        )
        if any(
            "Flex delegate" in each.get("error", "")
            for each in response["cases"]
        ):
            raise ExportVerificationError(
                "The file needs operators of TensorFlow's own "
                f"({', '.join(foreign)}), and the interpreter installed here "
                "has no Flex delegate to run them. Export with verify=False "
                "(--no-verify), and verify where there is one"
            )
        return response, outputs

    def compare_contents(
        self,
        reference: Reference,
        inspection: Inspection,
        response: Mapping[str, Any],
    ) -> tuple[list[str], list[str], list[str]]:
        """Compares the file with what the model becomes when converted."""
        return litert_proof.compare_with_conversion(reference, inspection)

    def run_further(
        self, path: Path, reference: Reference, step: Step
    ) -> tuple[int | None, list[str]]:
        """Runs a file of a task in MediaPipe, from raw text."""
        if self._task is None:
            return None, []
        step("Running it in MediaPipe")
        return verify_in_mediapipe(self._task, path, reference)
