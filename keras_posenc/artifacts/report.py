"""What the verification of an artifact found."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from keras_posenc.artifacts.errors import ExportVerificationError

_LINES = 8  # of samples of one signature, in a report


@dataclasses.dataclass(frozen=True)
class CaseReport:
    """How one batch of inputs went.

    Attributes:
        signature: Name of the signature.
        inputs: What the batch was, in words.
        worst_difference: Largest difference from the model, relative as for
            `verify`; infinite on an error.
        worst_output: Where it is: the output's name and index.
        milliseconds: Median time of a call in the runtime.
        error: What the runtime raised, or None.
        is_nan: Whether the model's answer has no finite number.
        is_sample: Whether the batch was given, and not invented.
        mean_difference: The mean of all differences.
        agreeing: In how many rows of scores the largest is the model's,
        rows: of how many.
        kept: The same of the decided rows alone, in which the largest score
        decided: leads by more than the report's `lead`.
    """

    signature: str
    inputs: str
    worst_difference: float
    worst_output: str
    milliseconds: float
    error: str | None = None
    is_nan: bool = False
    is_sample: bool = False
    mean_difference: float = 0.0
    agreeing: int = 0
    rows: int = 0
    kept: int = 0
    decided: int = 0

    def __str__(self) -> str:
        return f"{self.signature}, {self.inputs}: " + (
            self.error
            or f"{self.worst_difference:.2g}, {self.milliseconds:.2f} ms"
        )


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What a quantized file loses, on the samples that were given if any.

    Attributes:
        worst_difference: The largest difference from the model itself.
        mean_difference: The mean of all differences.
        agreement: The share of rows of scores whose largest is the model's, or
            None without scores.
        rows: How many rows of scores there were.
        on_samples: Whether samples were given.
    """

    worst_difference: float
    mean_difference: float
    agreement: float | None
    rows: int
    on_samples: bool

    def __str__(self) -> str:
        text = (
            f"worst difference {self.worst_difference:.2g}, mean "
            f"{self.mean_difference:.2g}"
        )
        if self.agreement is not None:
            text += (
                f", the largest score is the model's in {self.agreement:.1%} "
                f"of {self.rows}"
            )
        return text + (
            " (on the samples)" if self.on_samples else " (on invented inputs)"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class VerificationReport:
    """What a fresh process found when it ran an artifact.

    `str(report)` is one line, and below it what needs attention;
    `report.details()` lists every case.

    Attributes:
        path: The artifact.
        kind: `"saved_model"` or `"litert"`.
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
        altered: Weights, tables, constants and outputs' graphs that are not
            the model's, in words: an artifact that has any has not passed.
        folded: Those that could not be compared, in words.
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
    altered: list[str] = dataclasses.field(default_factory=list)
    folded: list[str] = dataclasses.field(default_factory=list)

    @property
    def accuracy(self) -> Accuracy:
        """How far the artifact is from the model: see `Accuracy`."""
        cases = [case for case in self.cases if case.is_sample] or self.cases
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
        ] or self.cases

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

        And, of a quantized file, the largest score the model's as often as
        `agreement` says. Answers that are NaN throughout, equal as they are,
        prove nothing. Nor do answers prove what no question reached: see
        `altered`.
        """
        return (
            self.worst_difference <= self.tolerance
            and self._agrees
            and not self.altered
            and not all(case.is_nan for case in self.cases)
        )

    @property
    def _agrees(self) -> bool:
        kept, decided = self.decided
        return not decided or kept / decided >= self.agreement

    def require_success(self) -> None:
        """Raises `ExportVerificationError` with the worst case, if any."""
        if self.passed:
            return
        worst = self.worst
        if worst.worst_difference <= self.tolerance and self.altered:
            raise ExportVerificationError(
                "The artifact gives the model's answers, and is not made of "
                f"the same: {'; '.join(self.altered)}. If another version of "
                "Keras, or of the model's code, wrote it, export it anew",
                self,
            )
        if worst.worst_difference <= self.tolerance and not self._agrees:
            raise ExportVerificationError(
                "The file chooses another largest score than the model too "
                f"often: {self._decisions()}. If that is often enough for "
                "you, allow it by `agreement` (--agreement)",
                self,
            )
        if worst.worst_difference <= self.tolerance:
            raise ExportVerificationError(
                "The model answers nothing but NaN, which verifies nothing",
                self,
            )
        failed = sum(
            not case.worst_difference <= self.tolerance for case in self.judged
        )
        reason = worst.error or (
            f"{worst.worst_output} differs by {worst.worst_difference:.3g}, "
            f"and {self.tolerance:.3g} is allowed"
        )
        if worst.error is None and self.quantization:
            reason += (
                f". That is more than {self.quantization} should do to this "
                "model; if it is little enough for you, allow it by "
                "`tolerance` (--tolerance)"
            )
        elif worst.error is None and worst.worst_difference < 1e-3:
            reason += (
                ". If that is rounding, which grows with the length and where "
                "many tokens are the same, allow more by `tolerance` "
                "(--tolerance)"
            )
        raise ExportVerificationError(
            f"The artifact does not give the model's answers in {failed} of "
            f"{len(self.cases)} cases. The worst: signature "
            f"'{worst.signature}', {worst.inputs}: {reason}",
            self,
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as what JSON can hold."""
        return {
            **dataclasses.asdict(self),
            "path": str(self.path),
            "passed": self.passed,
            "worst_difference": _jsonable(self.worst_difference),
            "lead": _jsonable(self.lead),
            "unvaried": self.unvaried,
            "accuracy": _as_jsonable(self.accuracy),
            "cases": [_as_jsonable(case) for case in self.cases],
        }

    def __repr__(self) -> str:
        return f"<VerificationReport of {self._summary()}>"

    def __str__(self) -> str:
        """One line, and below it what was not verified or needs attention."""
        return "\n".join([self._summary(), *self._remarks()])

    def details(self) -> str:
        """All of it: what `str` says, how it was asked, and each case."""
        lines = [str(self), f"loaded in {self.load_seconds:.2f} s"]
        if self.in_float32:
            lines.append(
                "compared with the model in float32, as the file computes: its "
                "mixed precision rounds otherwise"
            )
        if self.refused:
            lines.append(
                f"not tried, as the model does not take it: "
                f"{'; '.join(self.refused)}"
            )
        if self.warmup:
            lines.append(f"replayed {self.warmup} warm-up requests")
        lines.append("signature, inputs: worst difference, time of a call")
        for name in dict.fromkeys(case.signature for case in self.cases):
            samples = [
                case
                for case in self.cases
                if case.is_sample and case.signature == name
            ]
            lines += [f"  {case}" for case in samples[:_LINES]]
            if len(samples) > _LINES:
                worst = max(samples, key=lambda case: case.worst_difference)
                lines.append(
                    f"  {name}, {len(samples) - _LINES} more samples; the "
                    f"worst of all: {worst}"
                )
        lines += [f"  {case}" for case in self.cases if not case.is_sample]
        return "\n".join(lines)

    def _remarks(self) -> list[str]:
        lines = list(self.narrower)
        lines += [f"not the model's own: {each}" for each in self.altered]
        if self.folded:
            lines.append(f"not compared: {'; '.join(self.folded)}")
        if self.foreign_operators:
            lines.append(
                f"needs operators beyond the plain runtime: "
                f"{', '.join(self.foreign_operators)}"
            )
        if self.quantization:
            lines.append(
                f"{self.quantization}, beside the model itself: "
                f"{self.accuracy}; {self.tolerance:.2g} is allowed"
            )
            if self.accuracy.rows:
                lines.append(self._decisions())
        if self.quantization == "int8-static" and not self.accuracy.on_samples:
            lines.append(
                "right only for inputs like those that it was calibrated with: "
                "give some as `samples` (--samples) to verify it"
            )
        hint = (
            ""
            if self.accuracy.on_samples
            else ". Give inputs like those that it is for as `samples` "
            "(--samples)"
        )
        if self.constant:
            lines.append(
                "weak check: over these inputs the model's answers hardly vary "
                f"in {', '.join(self.constant)}{hint}"
            )
        elif self.blurred:
            lines.append(
                "weak check: over these inputs the model's answers vary no "
                "more than rounding may move them in "
                f"{', '.join(self.blurred)}{hint}"
            )
        if self.unseen:
            lines.append(
                "columns too small to be seen beside the others: "
                f"{', '.join(self.unseen)}"
            )
        if self.unvaried:
            lines.append(
                "lengths and batches were not varied beyond the samples: "
                f"{', '.join(self.unvaried)}"
            )
        if self.padding_matters:
            lines.append(
                "padding changes its answers: let no server batch rows of "
                "different lengths"
            )
        if self.warmup is None:
            lines.append(
                "its warm-up requests were not replayed: pip install "
                "'keras-posenc[serving]'"
            )
        if self.unverified:
            lines.append(f"not verified: {', '.join(self.unverified)}")
        return lines

    def _decisions(self) -> str:
        """How often the largest score is kept, and how often it must be."""
        kept, decided = self.decided
        rows = sum(case.rows for case in self.judged)
        text = f"the largest score leads by more than {self.lead:.2g} in "
        if not decided:
            return f"{text}none of {rows} rows, so which it is was not checked"
        return (
            f"{text}{decided} of {rows} rows, and is the model's in {kept} of "
            f"these; {100 * self.agreement:.4g}% is required"
        )

    def _summary(self) -> str:
        count, judged = len(self.cases), len(self.judged)
        on_samples = (
            f" on the {judged} samples" if judged < count else ""
        )  # all others must be finite, and no more
        return (
            f"{self.path}: {'verified' if self.passed else 'WRONG'}: {count} "
            f"case{'s' * (count != 1)}, worst {self.worst_difference:.2g} of "
            f"{self.tolerance:.2g}{on_samples}, {self.size_bytes / 1e6:.2f} MB"
        )


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


def _as_jsonable(record: Any) -> dict[str, Any]:
    return {
        key: _jsonable(value) if isinstance(value, float) else value
        for key, value in dataclasses.asdict(record).items()
    }


def _jsonable(number: float) -> float | None:
    return number if math.isfinite(number) else None
