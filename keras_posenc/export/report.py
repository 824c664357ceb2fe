"""The report of a verification."""

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any, Self

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.likelihoods import Likelihoods
from keras_posenc.export.probes.quality import Loss, Quality, largest_loss
from keras_posenc.progress import printable


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseReport:
    """Result of one batch of inputs: how far the file's outputs are off.

    Attributes:
        signature: Name of the signature.
        inputs: The inputs, as text.
        largest_difference: The largest difference, relative as for `verify`;
            infinite on an error, or if shapes differ.
        where: Name and index of the output with this difference.
        milliseconds: Median time of a call in the runtime, or None.
        error: What the runtime raised, or None.
        is_nan: Whether the model's outputs have no finite number.
        is_sample: Whether the caller gave the batch as a sample.
        is_extreme: Whether the inputs are extreme, such as zeros or 1e4.
        examples: Number of examples in the batch.
        likelihoods: Of a generator: likelihoods of texts.
        undetermined: Number of examples that were not compared, as rounding
            decides the model's own outputs.
        allowed: The largest difference allowed; of a quantized file any that is
            finite.
    """

    signature: str
    inputs: str
    largest_difference: float = 0.0
    where: str = ""
    milliseconds: float | None = None
    error: str | None = None
    is_nan: bool = False
    is_sample: bool = False
    is_extreme: bool = False
    examples: int = 1
    likelihoods: Likelihoods | None = None
    undetermined: int = 0
    allowed: float = sys.float_info.max

    @property
    def is_right(self) -> bool:
        """Whether the difference is allowed."""
        return self.largest_difference <= self.allowed

    def __str__(self) -> str:
        found = f"{self.largest_difference:.2g}"
        if self.likelihoods is not None:
            found = self.likelihoods.text({})
        if self.milliseconds:
            found += f", {units.time(self.milliseconds / 1e3)}"
        text = f"{self.signature}, {self.inputs}: {self.error or found}"
        if self.undetermined:
            count = units.count(self.undetermined, "example")
            text += f", {count} not compared"
        return printable(text)


@dataclasses.dataclass(frozen=True, repr=False)
class VerificationReport:
    """Result of running an exported model in a fresh process.

    `str(report)` is one line, followed by lines for what needs attention;
    `report.details()` lists every case. `bool(report)` is `report.passed`.

    Attributes:
        path: The exported file or folder.
        kind: `"saved_model"`, `"litert"` or `"onnx"`.
        size_bytes: Size of the file or folder.
        foreign_operators: Operators that the plain runtime lacks.
        unverified: Signatures that were not compared.
        tolerance: Largest difference allowed.
        cases: One `CaseReport` for each batch of inputs.
        quality: How near each output of a quantized file is to the model's, by
            `signature/output`.
        limits: The limits of a quantized file by name: see `verify_export`.
        quantization: The file's mode of quantization, or None.
        different_weights: Weights that are not those of the file, by their
            paths: they have changed since the export, or a SavedModel stores
            others. If there are any, the verification fails.
        eager_differences: Where the model called directly gives other outputs
            than its graph, as text. The file is compared with the graph.
        notes: Further remarks, as text, such as that inputs take one shape in
            the file and any shape in the model.
        checks: What else was compared, as text, such as that MediaPipe gave the
            model's outputs.
        by_likelihood: Signatures of a quantized generator, whose likelihoods of
            texts were compared instead of its outputs.
    """

    path: Path
    kind: str
    size_bytes: int
    foreign_operators: list[str]
    unverified: list[str]
    tolerance: float
    cases: list[CaseReport]
    quantization: str | None = None
    quality: dict[str, Quality] = dataclasses.field(default_factory=dict)
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    different_weights: list[str] = dataclasses.field(default_factory=list)
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    checks: list[str] = dataclasses.field(default_factory=list)
    by_likelihood: list[str] = dataclasses.field(default_factory=list)

    @property
    def likelihoods_of(self) -> dict[str, Likelihoods]:
        """The likelihoods of each signature in `by_likelihood`."""
        found: dict[str, Likelihoods] = {}
        for case in self.cases:
            name, own = case.signature, case.likelihoods
            if name in self.by_likelihood and own is not None:
                found[name] = found.get(name, Likelihoods()) + own
        return found

    @property
    def losses(self) -> dict[str, Loss]:
        """What a quantized file loses, by output or generating signature."""
        return {**self.quality, **self.likelihoods_of}

    @property
    def too_lossy(self) -> dict[str, str]:
        """What loses more than the limits allow, with its numbers as text."""
        return {
            name: found.text(self.limits)
            for name, found in self.losses.items()
            if found.exceeded(self.limits)
        }

    @property
    def on_samples(self) -> bool:
        """Whether there were samples, on which alone `quality` is measured."""
        return any(case.is_sample for case in self.cases)

    @property
    def required_cases(self) -> list[CaseReport]:
        """All that are wrong, and those without extreme inputs."""
        return [x for x in self.cases if not (x.is_right and x.is_extreme)]

    @property
    def worst(self) -> CaseReport:
        """The required case with the largest difference; a wrong one first."""
        return max(
            self.required_cases,
            key=lambda case: (not case.is_right, case.largest_difference),
        )

    @property
    def largest_difference(self) -> float:
        """The largest difference of all required cases."""
        return self.worst.largest_difference

    @property
    def failure(self) -> str | None:
        """Why the exported model does not reproduce the model, or None."""
        others = (
            "the file has other weights than the model: "
            f"{units.some(self.different_weights)}"
        )
        if not self.worst.is_right:
            return self._difference + self._remedy(others)
        if self.too_lossy:
            what = "; ".join(map(": ".join, self.too_lossy.items()))
            return (
                f"The {self.quantization} file is too far from the model: "
                f"{what}. {_LIMITS}"
            )
        if all(case.is_nan for case in self.cases):
            return "The model's outputs are all NaN, so nothing was verified"
        if self.different_weights:
            return f"The outputs are within limits, but {others}. {_TRAINED}"
        return None

    @property
    def _difference(self) -> str:
        worst = self.worst
        wrong = [case for case in self.cases if not case.is_right]
        allowed = f"{worst.allowed:.3g}"
        if self.quantization is not None:
            allowed = "any that is finite"
        reason = worst.error or (
            f"largest difference {worst.largest_difference:.3g} (allowed "
            f"{allowed}), relative to the output's size, in {worst.where}"
        )
        return (
            "The exported model does not reproduce the model's outputs in "
            f"{len(wrong):,} of {units.count(len(self.cases), 'case')}. "
            f"Signature '{worst.signature}', {worst.inputs}: {reason}"
        )

    def _remedy(self, other_weights: str) -> str:
        if self.worst.error:
            return ""
        if self.worst.is_extreme and self.kind != "saved_model":
            return f". {_EXTREME}"
        if self.different_weights:
            return f"; {other_weights}. {_TRAINED}"
        if self.eager_differences:
            return ". ".join(["", *self.eager_differences])
        is_near = self.largest_difference < 1e-3
        return f". {_ROUNDING * is_near}{_TRAINED}"

    @property
    def passed(self) -> bool:
        """Whether the exported model reproduces the model.

        Every difference must be within the tolerance. A quantized file's
        outputs must be finite, and lose no more than `limits` allow. Outputs
        that are NaN throughout fail: they prove nothing. Test inputs cannot
        reach every weight, so `different_weights` count too.
        """
        return self.failure is None

    def __bool__(self) -> bool:
        return self.passed

    def require_success(self) -> None:
        """Raises `ExportVerificationError` with the reason if it failed."""
        reason = self.failure
        if reason is not None:
            raise ExportVerificationError(reason, self)

    def with_notes(self, *notes: str) -> Self:
        """Returns the report with further notes."""
        return dataclasses.replace(self, notes=[*self.notes, *notes])

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict that JSON can hold."""
        record: dict[str, Any] = units.jsonable(
            {
                **dataclasses.asdict(self),
                "passed": self.passed,
                "largest_difference": self.largest_difference,
                "likelihoods": {
                    name: {**dataclasses.asdict(each), **each.measured}
                    for name, each in self.likelihoods_of.items()
                },
            }
        )
        return record

    @property
    def summary(self) -> str:
        """The result in one line."""
        count, on_samples = len(self.cases), ""
        if self.quantization is not None and self.on_samples:
            examples = sum(x.examples for x in self.cases if x.is_sample)
            on_samples = f" on the {units.count(examples, 'sample')}"
        verdict = "verified" if self.passed else "FAILED"
        what = (
            f"largest difference {self.largest_difference:.2g} (allowed "
            f"{self.tolerance:.2g})"
        )
        if self.quantization and math.isfinite(self.largest_difference):
            what = largest_loss(self.losses.values(), self.limits)
        return (
            f"{self.path}: {verdict}: {units.count(count, 'case')}, {what}"
            f"{on_samples}, {units.size(self.size_bytes)}"
        )

    def __repr__(self) -> str:
        return f"<VerificationReport of {self.summary}>"

    def __str__(self) -> str:
        inputs = "the samples" if self.on_samples else "generated inputs"
        on_inputs = f", {self.quantization}, on {inputs}"
        lines = [self.summary, *filter(None, [self.failure]), *self.notes]
        if self.worst.is_right:
            lines += self.eager_differences
        if self.foreign_operators:
            lines.append(
                "needs operators that the plain runtime lacks: "
                f"{', '.join(self.foreign_operators)}"
            )
        for name, loss in self.losses.items():
            if name not in self.too_lossy:
                on = on_inputs if name in self.quality else ""
                lines.append(f"{name}{on}: {loss.text(self.limits)}")
        if self.unverified:
            labels = any("/" in name for name in self.unverified)
            lines.append(
                f"not verified: {', '.join(self.unverified)}"
                + ". Give the export's `labels`" * labels
            )
        return "\n".join(map(printable, lines))

    def details(self) -> str:
        """Returns the report with all remarks and every case."""
        lines = [
            *self.checks,
            "signature, inputs: largest difference, time of one call if known",
        ]
        lines += [f"  {case}" for case in self.cases]
        return "\n".join([str(self), *map(printable, lines)])


_TRAINED = "If the model was trained after the export, export it again"
_ROUNDING = (
    "If this is rounding, which grows with the length and with many equal "
    "tokens, give a larger `tolerance`. "
)
_EXTREME = (
    "The runtime computes an operator of the model differently for such "
    "inputs, or in float32, which rounds integers above 16,777,216. Use "
    "export_saved_model, which keeps the model's own operators; or limit the "
    "operator's inputs: keras.ops.clip(x, -30, 30) if they are large, "
    "keras.ops.maximum(x, 1e-6) if it divides by x"
)
_LIMITS = (
    f"{_TRAINED}. Else choose a finer `quantization`, allow it by `limits`, or "
    "give real inputs as `samples`, which may lose less than generated ones"
)


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """An exported model.

    Attributes:
        path: The version folder or file.
        report: The report of its verification, or None if it was not verified.
    """

    path: Path
    report: VerificationReport | None

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.path}: not verified"
        return str(self.report)
