"""What the verification of an artifact found."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.expectations.differences import Loss
from keras_posenc.artifacts.ground.errors import ExportVerificationError
from keras_posenc.artifacts.verification import wording
from keras_posenc.artifacts.verification.case_report import (
    Accuracy,
    CaseReport,
    as_jsonable,
    jsonable,
)


@dataclasses.dataclass(frozen=True, repr=False)
class VerificationReport:
    """What a fresh process found when it ran an artifact.

    `str(report)` is one line, and below it what needs attention;
    `report.details()` lists every case. A report is true where it has
    `passed`.

    Attributes:
        path: The artifact.
        kind: `"saved_model"`, `"litert"` or `"onnx"`.
        size_bytes: Its size.
        load_seconds: Time to load it.
        foreign_operators: Operators that the plain runtime does not have.
        unverified: Signatures of the artifact that were not compared.
        tolerance: The largest difference that passes.
        cases: One `CaseReport` for each batch of inputs.
        refused: Batches, in words, that the model itself does not take, such
            as sequences shorter than a convolution.
        constant: Outputs that hardly depend on what came in, such as scores
            of a saturated softmax: that they agree says little.
        blurred: Outputs of a quantized file that differ, from input to input,
            by no more than it may differ from the model.
        unseen: Columns, in words, so small beside others of their output that
            what passed there shows not two digits of them.
        lead: By how much the largest score of a row must lead the others for
            the row to be decided: by more than rounding usually moves both.
        agreement: The share of decided rows whose largest score must be the
            model's, in a quantized file.
        kinds: What the outputs of a quantized file are judged as, and why, in
            words: scores, logits or vectors.
        allowed_losses: What a row of these may lose, by kind: of vectors, 1
            less the cosine with the model's; of logits, the KL divergence from
            the model's, in nats. Empty where `tolerance` was given.
        in_float32: Whether a model of mixed precision was asked in float32, as
            its LiteRT file computes.
        quantization: The artifact's mode of quantization, or None.
        warmup: How many warm-up requests of a SavedModel were replayed; None
            if it has some, and tensorflow-serving-api, which reads them, is
            not installed.
        padding_matters: Whether zeros behind its ids change the model's answer
            to a row, so that no server should batch rows of different lengths.
        narrower: Inputs that the artifact takes in one shape only, and the
            model in any, in words.
        altered: Weights, tables and other numbers that are not the model's, in
            words: an artifact that has any has not passed.
        rewritten: What of its graph is not as it is written here, in words:
            an artifact that has any has passed by `other_writer` alone.
        folded: What could not be compared, in words.
        other_writer: Whether its graph may be as others write it; see
            `verify`.
        notes: What else is to be known of it, in words: that quantization
            changed nothing, strings that it does not take, operators that were
            allowed and are not there.
        mediapipe: Of how many texts MediaPipe itself gave the model's answers,
            for a file of a task; None where it was not asked.
    """

    path: Path
    kind: str
    size_bytes: int
    load_seconds: float
    foreign_operators: list[str]
    unverified: list[str]
    tolerance: float
    cases: list[CaseReport]
    refused: list[str] = dataclasses.field(default_factory=list)
    constant: list[str] = dataclasses.field(default_factory=list)
    in_float32: bool = False
    quantization: str | None = None
    warmup: int | None = 0
    padding_matters: bool = False
    narrower: list[str] = dataclasses.field(default_factory=list)
    blurred: list[str] = dataclasses.field(default_factory=list)
    unseen: list[str] = dataclasses.field(default_factory=list)
    lead: float = math.inf
    agreement: float = 0.99
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    allowed_losses: dict[str, float] = dataclasses.field(default_factory=dict)
    altered: list[str] = dataclasses.field(default_factory=list)
    folded: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    mediapipe: int | None = None
    rewritten: list[str] = dataclasses.field(default_factory=list)
    other_writer: bool = False

    @property
    def accuracy(self) -> Accuracy:
        """How far the artifact is from the model: see `Accuracy`."""
        cases = self._usual
        cases = [case for case in cases if case.is_sample] or cases
        rows = sum(case.rows for case in cases)
        return Accuracy(
            worst_difference=max(case.worst_difference for case in cases),
            mean_difference=sum(case.mean_difference for case in cases)
            / len(cases),
            agreement=sum(case.agreeing for case in cases) / rows
            if rows
            else None,
            rows=rows,
            on_samples=cases[0].is_sample,
        )

    @property
    def judged(self) -> list[CaseReport]:
        """The cases whose difference must be within the tolerance.

        A quantized file is held to what it is for: to the samples, if there
        are any. Elsewhere it must be finite, and no more.
        """
        if self.quantization is None:
            return self.cases
        return [
            case
            for case in self.cases
            if case.is_sample or math.isinf(case.worst_difference)
        ] or self._usual

    @property
    def _usual(self) -> list[CaseReport]:
        return [case for case in self.cases if not case.is_extreme]

    @property
    def worst(self) -> CaseReport:
        """The case with the largest difference, of those that are judged."""
        return max(self.judged, key=lambda case: case.worst_difference)

    @property
    def worst_difference(self) -> float:
        """The largest difference of all cases that are judged."""
        return self.worst.worst_difference

    @property
    def decided(self) -> tuple[int, int]:
        """In how many decided rows the largest score is kept, and of how many.

        Of the cases that are judged, for a quantized file; else none.
        """
        if self.quantization is None:
            return 0, 0
        return (
            sum(case.kept for case in self.judged),
            sum(case.decided for case in self.judged),
        )

    @property
    def unvaried(self) -> list[str]:
        """Signatures that were asked nothing but the samples."""
        invented = {case.signature for case in self.cases if not case.is_sample}
        asked = dict.fromkeys(case.signature for case in self.cases)
        return [name for name in asked if name not in invented]

    @property
    def passed(self) -> bool:
        """Whether every difference is within the tolerance.

        A quantized file's largest score must also be the model's as often as
        `agreement` says, and its vectors and logits may lose no more than
        `allowed_losses`. Answers that are NaN throughout, equal as they are,
        prove nothing. Nor do answers prove what no question reached: see
        `altered` and `rewritten`.
        """
        return (
            self.worst_difference <= self.tolerance
            and self.agrees
            and not self.lost_too_much
            and not self.altered
            and (self.other_writer or not self.rewritten)
            and not all(case.is_nan for case in self.cases)
        )

    def __bool__(self) -> bool:
        return self.passed

    @property
    def agrees(self) -> bool:
        """Whether the largest scores are the model's as often as required."""
        kept, decided = self.decided
        return not decided or kept / decided >= self.agreement

    @property
    def lost(self) -> dict[str, Loss]:
        """By kind, what logits and vectors have lost in the judged cases."""
        lost: dict[str, Loss] = {}
        for case in self.judged:
            for kind, loss in case.lost.items():
                lost[kind] = lost.get(kind, Loss()) + loss
        return lost

    @property
    def lost_too_much(self) -> list[str]:
        """The kinds of which a row has lost more than is allowed."""
        return [
            kind
            for kind, loss in self.lost.items()
            if loss.most > self.allowed_losses.get(kind, math.inf)
        ]

    def require_success(self) -> None:
        """Raises `ExportVerificationError` with the worst case, if any."""
        reason = wording.failure(self)
        if reason is not None:
            raise ExportVerificationError(reason, self)

    def to_dict(self) -> dict[str, Any]:
        """The report as what JSON can hold."""
        return {
            **dataclasses.asdict(self),
            "path": str(self.path),
            "passed": self.passed,
            "worst_difference": jsonable(self.worst_difference),
            "lead": jsonable(self.lead),
            "unvaried": self.unvaried,
            "accuracy": as_jsonable(self.accuracy),
            "cases": [as_jsonable(case) for case in self.cases],
        }

    def __repr__(self) -> str:
        return f"<VerificationReport of {wording.summary(self)}>"

    def __str__(self) -> str:
        """One line, and below it what was not verified or needs attention."""
        return "\n".join([wording.summary(self), *wording.remarks(self)])

    def details(self) -> str:
        """All of it: what `str` says, how it was asked, and each case."""
        return wording.details(self)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An exported model.

    Attributes:
        path: The version folder or file.
        report: What its verification found, or None if it was not verified.
    """

    path: Path
    report: VerificationReport | None

    def __str__(self) -> str:
        if self.report is None:
            return f"{self.path}: not verified"
        return str(self.report)

    @classmethod
    def published(
        cls, path: Path, report: VerificationReport | None
    ) -> "Artifact":
        """An artifact that was verified elsewhere and now stands at `path`."""
        if report is not None:
            report = dataclasses.replace(report, path=path)
        return cls(path, report)
