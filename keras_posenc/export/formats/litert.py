"""The format LiteRT, for the pipeline."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_posenc.export import units
from keras_posenc.export.check import limits_of
from keras_posenc.export.formats.litert_compiled_model import (
    compare_in_compiled_model,
)
from keras_posenc.export.formats.litert_convert import convert
from keras_posenc.export.formats.litert_quantize import (
    Samples,
    mode_of,
    resolve_quantization,
)
from keras_posenc.export.formats.mediapipe import (
    TextTask,
    packed_task,
    resolve_task,
    verify_in_mediapipe,
    with_metadata,
)
from keras_posenc.export.graphs.weights import check_size, to_float32
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.pipeline import Format, Step
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import fit_samples, split_texts
from keras_posenc.export.report import VerificationReport
from keras_posenc.export.signatures.resolve import resolve_numeric_signatures
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import keep_spare
from keras_posenc.keras_internals import layers_within
from keras_posenc.publish import writing_to
from keras_posenc_worker import convert_litert, run


@dataclasses.dataclass(kw_only=True)
class LiteRT(Format):
    """A LiteRT file of numeric signatures, or for a MediaPipe task."""

    mode: Any = None
    task_name: str | None = None
    labels: Sequence[str] | None = None
    task: TextTask | None = None
    texts: Sequence[str] = ()
    of_one: Sequence[str] = ()
    batches: Samples = dataclasses.field(default_factory=dict)
    writing: ClassVar[str] = "Converting to LiteRT"

    @property
    def needs_samples(self) -> bool:
        """Whether samples are needed for more than the verification."""
        return bool(self.mode == "int8-static")

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signatures, and the task if the file is for one."""
        self.mode = resolve_quantization(self.mode)
        self.quantization = mode_of(self.mode)
        if found is not None:
            self.quantization = found.quantization
            self.task = packed_task(model, found, self.given, self.labels)
            if self.labels is None and (found.metadata or {}).get("labels"):
                self.unverified = ["labels"]
        elif self.task_name is not None:
            self.task = resolve_task(
                model, self.task_name, self.labels, self.given
            )
        if self.task is None:
            self.signatures = resolve_numeric_signatures(model, self.given)
            if self.given is None:
                measuring = self._measuring(model, found)
                self.signatures = [*self.signatures, *measuring]
                self._take_one_example(found)
            self.signatures = [*map(_without_bools, self.signatures)]
        else:
            self.signatures = [self.task.signature]
        if found is None:
            keep_spare(convert_litert.__name__)
            if self.verify:
                keep_spare(run.__name__, "litert")
            check_size(
                self.signatures,
                "LiteRT",
                "`quantization='int8'` divides them by 4, and "
                "export_saved_model keeps them in files of their own",
                # The other modes first write a float32 file.
                0.25 if self.mode in ("int8", "int8-weights") else 1.0,
            )
        self.in_float32 = to_float32(self.signatures, self.frozen)
        if self.task is not None:
            self.texts, others = split_texts(self.samples)
            rows = [inputs for _, inputs in self.task.rows(self.texts)]
            self.samples = [*others, *rows]
        if found is None and self.quantization == "int8-static":
            self.batches = fit_samples(self.signatures, self.samples)
            if not all(self.batches.values()):
                raise ValueError(
                    "`quantization='int8-static'` finds the ranges of numbers "
                    "with `samples`: some hundred real inputs of each signature"
                )

    def _take_one_example(self, found: Inspection | None) -> None:
        """Fixes a free batch to 1 where a recurrent layer loops."""

        def is_of_one(signature: Signature) -> bool:
            """Returns whether a signature of the file takes one alone."""
            if found is None:
                return True
            sides = found.signatures.get(signature.name, {"inputs": {}})
            shapes = [each.shape for each in sides["inputs"].values()]
            return all(shape and shape[0] == 1 for shape in shapes)

        self.of_one = [
            each.name
            for each in self.signatures
            if each.oracle is None
            and any(
                isinstance(layer, keras.layers.RNN) and not layer.unroll
                for layer in layers_within(each.model)
            )
            and all(spec.shape[:1] == (None,) for spec in each.specs.values())
            and is_of_one(each)
        ]
        if self.of_one and self.samples is not None:
            self.samples = [
                {name: value[row : row + 1] for name, value in inputs.items()}
                for given in fit_samples(self.signatures, self.samples).values()
                for inputs in given
                for row in range(len(next(iter(inputs.values()))))
            ]
        self.signatures = [
            each.with_batch(1) if each.name in self.of_one else each
            for each in self.signatures
        ]

    def _measuring(
        self, model: keras.Model, found: Inspection | None
    ) -> list[Signature]:
        """Returns what a quantized file has to measure its loss with."""
        offers = Offers.of(model).measures_quantized
        if offers is None or self.quantization is None:
            return []
        return [
            each
            for each in resolve_numeric_signatures(model, offers())
            if found is None or each.name in found.signatures
        ]

    def write(self, path: Path) -> None:
        """Converts the model with TensorFlow's converter."""
        in_order = self.task is None
        kept = convert(
            self.signatures,
            self.mode,
            path,
            self.batches,
            in_order,
            self.compute,
        )
        notes = []
        if self.of_one:
            notes.append(
                f"{', '.join(self.of_one)} takes a batch of 1: loops of "
                "recurrent layers need a fixed batch in LiteRT"
            )
        if kept:
            notes.append(
                f"{self.quantization} leaves in float32: {units.some(kept)}. "
                "Something other than products and lookups reads them, or the "
                "recipe leaves them out"
            )
        self.left_out = [*self.left_out, *notes]
        if self.task is not None:
            content = with_metadata(path.read_bytes(), self.task)
            with writing_to(path.parent):
                path.write_bytes(content)

    def run(self, reference: Reference, found: Inspection) -> dict[str, Any]:
        """Returns the file's outputs, and how `CompiledModel` compares."""
        response = super().run(reference, found)
        text = compare_in_compiled_model(
            found.path,
            [(each.signature, each.inputs) for each in reference.probes],
            response["cases"],
            limits_of(reference, found),
        )
        kind = "checks" if text.startswith("equal") else "notes"
        response[kind] = [f"CompiledModel: {text}"]
        return response

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Runs a file of a task in MediaPipe, from raw text."""
        if self.task is None:
            return report
        step("Running it in MediaPipe")
        count = verify_in_mediapipe(
            self.task, report.path, reference, self.texts
        )
        texts = units.count(count, "text")
        text = f"MediaPipe gave the model's outputs for {texts}"
        checks = [*report.checks, text]
        return dataclasses.replace(report, checks=checks).with_notes(
            "MediaPipe lowercases only ASCII letters and keeps accents: other "
            "texts get other ids, unless the application folds them first"
        )


def _without_bools(signature: Signature) -> Signature:
    """Returns `ended` of generators as 0 or 1: LiteRT.js takes no bools."""

    def call(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: keras.ops.cast(x, "int32")
            if name == "ended" and x.dtype == "bool"
            else x
            for name, x in signature.call(tensors).items()
        }

    return dataclasses.replace(signature, call=call)
