"""What the verification of an exported model found."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.probes.compare import LOGITS, VECTORS, Loss
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.progress import printable


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
        near_ties: In how many rows something else was chosen, such as a token,
            that the model holds for all but as good. What was chosen is
            compared with what the model says of it.
        is_extreme: Whether the inputs were zeros, large, tiny and the like.
        examples: How many examples the batch has.
        lost: Of a quantized file, what its logits and vectors have lost.
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
    near_ties: int = 0
    is_extreme: bool = False
    examples: int = 1
    lost: dict[str, Loss] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.signature}, {self.inputs}: " + (
            self.error
            or f"{self.worst_difference:.2g}, "
            f"{units.time(self.milliseconds / 1e3)}"
        )
        if self.near_ties:
            text += f", near-ties in {units.count(self.near_ties, 'example')}"
        return printable(text)


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """What a quantized file loses, on the samples that were given if any.

    Attributes:
        worst_difference: The largest difference from the model itself.
        mean_difference: The mean of all differences.
        agreement: The share of rows of scores or logits whose largest is the
            model's, or None without such.
        rows: How many of these rows there were.
        on_samples: Whether samples were given.
    """

    worst_difference: float
    mean_difference: float
    agreement: float | None
    rows: int
    on_samples: bool


def as_jsonable(record: Any) -> dict[str, Any]:
    """A record as what JSON can hold."""
    return {
        key: jsonable(value) if isinstance(value, float) else value
        for key, value in dataclasses.asdict(record).items()
    }


def jsonable(number: float) -> float | None:
    """A number, or None for one that JSON has not."""
    return number if math.isfinite(number) else None


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
        reason = failure(self)
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
        return f"<VerificationReport of {summary(self)}>"

    def __str__(self) -> str:
        """One line, and below it what was not verified or needs attention."""
        return "\n".join(map(printable, [summary(self), *remarks(self)]))

    def details(self) -> str:
        """All of it: what `str` says, how it was asked, and each case."""
        return details(self)


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


_LINES = 8  # of samples of one signature, in a report
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}
_LOST = {
    VECTORS: "The file's vectors point elsewhere than the model's",
    LOGITS: "The file's logits give other probabilities than the model's",
}
_OTHER_WRITER = (
    "If other versions, or another converter, wrote it, export it anew, or let "
    "its answers and the weights found in it suffice: other_writer=True "
    "(--other-writer)"
)


def failure(report: Any) -> str | None:
    """Why a report has not passed, with the worst case; None if it has."""
    if report.passed:
        return None
    is_within = report.worst_difference <= report.tolerance
    if is_within and report.altered:
        return (
            "The artifact gives the model's answers, but not from the "
            f"model's numbers: {'; '.join(report.altered)}. If another version "
            "of Keras, or of the model's code, wrote it, export it anew"
        )
    if is_within and report.rewritten and not report.other_writer:
        return (
            "The artifact gives the model's answers, but is not as "
            f"written here: {'; '.join(report.rewritten)}. "
            f"{_OTHER_WRITER}"
        )
    return _wrong_answers(report)


def _wrong_answers(report: Any) -> str | None:
    """What is wrong with an artifact's answers, with the worst case."""
    worst = report.worst
    if worst.worst_difference <= report.tolerance:
        if not report.agrees:
            return (
                "The file's largest score is not the model's too often: "
                f"{_decisions(report)}. If that is often enough for "
                "you, allow it by `agreement` (--agreement)"
            )
        if report.lost_too_much:
            found = ". ".join(
                f"{_LOST[kind]}: {_loss(report, kind)}"
                for kind in report.lost_too_much
            )
            return (
                f"{found}. That is more than {report.quantization} should do "
                "to this model; if it is little enough for you, allow it by "
                "`tolerance` (--tolerance), which then decides alone"
            )
        if all(case.is_nan for case in report.cases):
            return "The model answers nothing but NaN, which verifies nothing"
        return None
    failed = sum(
        not case.worst_difference <= report.tolerance for case in report.judged
    )
    reason = worst.error or (
        f"{worst.worst_output} differs by {worst.worst_difference:.3g} of the "
        f"output's size, and {report.tolerance:.3g} is allowed"
    )
    if worst.error is None and worst.is_extreme and report.kind in _RUNTIMES:
        reason += (
            f". {_RUNTIMES[report.kind]} computes an operator of the model "
            "differently for such inputs. Use export_saved_model, which keeps "
            "the model's own operators; or keep such numbers from it: "
            "keras.ops.clip(x, -30, 30) ahead of it if they are large, "
            "keras.ops.maximum(x, 1e-6) if it divides by x"
        )
    elif worst.error is None and report.quantization:
        reason += (
            f". That is more than {report.quantization} should do to this "
            "model; if it is little enough for you, allow it by "
            "`tolerance` (--tolerance)"
        )
    elif worst.error is None and worst.worst_difference < 1e-3:
        enough = 10.0 ** math.ceil(math.log10(worst.worst_difference))
        reason += (
            ". If that is rounding, which grows with the length and where "
            "many tokens are the same, allow it by "
            f"`tolerance={enough:.0e}` (--tolerance {enough:.0e})"
        )
    return (
        f"The artifact does not give the model's answers in {failed:,} of "
        f"{units.count(len(report.cases), 'case')}. The largest difference: "
        "signature "
        f"'{worst.signature}', {worst.inputs}: {reason}"
    )


def details(report: Any) -> str:
    """All of it: what `str` says, how it was asked, and each case."""
    lines = [str(report), f"loaded in {units.time(report.load_seconds)}"]
    if report.in_float32:
        lines.append(
            "compared with the model in float32, as the file computes; "
            "the model's mixed precision rounds differently"
        )
    if report.refused:
        lines.append(
            f"not tried, as the model does not take it: "
            f"{'; '.join(report.refused)}"
        )
    if report.warmup:
        requests = units.count(report.warmup, "warm-up request")
        lines.append(f"replayed {requests}")
    if report.mediapipe is not None:
        lines.append(
            "MediaPipe itself gave the model's answers to "
            f"{units.count(report.mediapipe, 'text')}"
        )
    lines.append("signature, inputs: largest difference, time of a call")
    for name in dict.fromkeys(case.signature for case in report.cases):
        samples = [
            case
            for case in report.cases
            if case.is_sample and case.signature == name
        ]
        lines += [f"  {case}" for case in samples[:_LINES]]
        if len(samples) > _LINES:
            worst = max(samples, key=lambda case: case.worst_difference)
            more = units.count(len(samples) - _LINES, "more case")
            lines.append(
                f"  {name}, {more} of samples; the largest difference of all: "
                f"{worst}"
            )
    lines += [f"  {case}" for case in report.cases if not case.is_sample]
    return "\n".join(lines)


def remarks(report: Any) -> list[str]:
    """What needs attention, or was not verified."""
    wrong = _wrong_answers(report)
    lines = [*filter(None, [wrong]), *report.narrower, *report.notes]
    lines += [f"not the model's own: {each}" for each in report.altered]
    lines += [f"not as written here: {x}" for x in report.rewritten]
    if report.rewritten and not report.other_writer:
        lines.append(_OTHER_WRITER)
    if report.folded:
        lines.append(f"not compared: {'; '.join(report.folded)}")
    if ties := sum(case.near_ties for case in report.cases):
        lines.append(
            f"near-ties: in {units.count(ties, 'example')} it chose otherwise "
            "where the model's choice leads by no more than the tolerance; "
            "what it chose has the scores that the model gives to it"
        )
    if report.foreign_operators:
        lines.append(
            f"needs operators beyond the plain runtime: "
            f"{', '.join(report.foreign_operators)}"
        )
    if report.quantization:
        accuracy = report.accuracy
        inputs = "the samples" if accuracy.on_samples else "invented inputs"
        lines.append(
            f"{report.quantization}, compared with the model on {inputs}: "
            f"largest difference {accuracy.worst_difference:.2g} (allowed "
            f"{report.tolerance:.2g}), mean {accuracy.mean_difference:.2g}"
        )
        lines += _judged(report)
    if report.quantization == "int8-static" and not report.accuracy.on_samples:
        lines.append(
            "right only for inputs like those that it was calibrated with: "
            "give some as `samples` (--samples) to verify it"
        )
    hint = (
        ""
        if report.accuracy.on_samples
        else ". Give inputs like those that it is for as `samples` (--samples)"
    )
    if report.constant:
        lines.append(
            "weak check: over these inputs the model's answers hardly vary "
            f"in {', '.join(report.constant)}{hint}"
        )
    elif report.blurred:
        lines.append(
            "weak check: over these inputs the model's answers vary no "
            "more than rounding may move them in "
            f"{', '.join(report.blurred)}{hint}"
        )
    if report.unseen:
        lines.append(
            "columns too small to be seen beside the others: "
            f"{', '.join(report.unseen)}"
        )
    if report.unvaried:
        lines.append(
            "lengths and batches were not varied beyond the samples: "
            f"{', '.join(report.unvaried)}"
        )
    if report.padding_matters:
        lines.append(
            "padding changes its answers: no server should batch rows of "
            "different lengths"
        )
    if report.warmup is None:
        lines.append(
            "its warm-up requests were not replayed: pip install "
            "'keras-posenc[serving]'"
        )
    if report.unverified:
        line = f"not verified: {', '.join(report.unverified)}"
        if any("/" in each for each in report.unverified):
            line += ". Give those of the export as `labels` (--labels)"
        lines.append(line)
    return lines


def _judged(report: Any) -> Iterator[str]:
    """What each kind of output was judged by, and what came of it."""
    for kind in dict.fromkeys(
        each.split()[0] for each in report.kinds.values()
    ):
        names = ", ".join(
            f"{name}{why.removeprefix(kind)}"
            for name, why in report.kinds.items()
            if why.split()[0] == kind
        )
        measures = []
        if kind in report.lost and kind not in report.lost_too_much:
            measures.append(_loss(report, kind))
        if kind != VECTORS and report.agrees:
            measures.append(_decisions(report))
        yield ": ".join(
            filter(None, [f"judged as {kind}: {names}", "; ".join(measures)])
        )


def _loss(report: Any, kind: str) -> str:
    """What rows of a kind have lost, and what they may."""
    loss, allowed = report.lost[kind], report.allowed_losses.get(kind)
    mean = loss.total / max(loss.rows, 1)
    if kind == VECTORS:
        limit = "" if allowed is None else f" (required {_cosine(allowed)})"
        return (
            f"cosine with the model's vector at least {_cosine(loss.most)}"
            f"{limit}, {_cosine(mean)} on average, over "
            f"{units.count(loss.rows, 'vector')}"
        )
    limit = "" if allowed is None else f" (allowed {allowed:.2g})"
    return (
        f"KL divergence from the model's probabilities at most {loss.most:.2g}"
        f"{limit}, {mean:.2g} on average"
    )


def _cosine(loss: float) -> str:
    """1 less a loss, with two digits of the loss."""
    if loss < 1e-7:  # which float32 cannot tell from 0
        return "1"
    digits = max(1 - math.floor(math.log10(loss)), 2)
    return f"{1 - loss:.{digits}f}"


def _decisions(report: Any) -> str:
    """How often the largest score is kept, and how often it must be."""
    kept, decided = report.decided
    agreeing, rows = (
        sum(getattr(case, name) for case in report.judged)
        for name in ("agreeing", "rows")
    )
    text = (
        f"the largest is the model's in {agreeing:,} of {rows:,}; where it "
        f"leads by more than {report.lead:.2g}, "
    )
    if not decided:
        return f"{text}which it never does, so this was not checked"
    return (
        f"{text}in {kept:,} of {decided:,} ({100 * report.agreement:.4g}% "
        "required)"
    )


def summary(report: Any) -> str:
    """What was verified, in one line."""
    count, judged = len(report.cases), len(report.judged)
    on_samples = ""
    # All others must be finite, and no more.
    if judged < count and report.judged[0].is_sample:
        examples = sum(case.examples for case in report.judged)
        on_samples = f" on the {units.count(examples, 'sample')}"
    verdict = "verified" if report.passed else "WRONG"
    if report.passed and report.rewritten:
        verdict += " by answers and weights alone, not its graph"
    return (
        f"{report.path}: {verdict}: {units.count(count, 'case')}, largest "
        f"difference {report.worst_difference:.2g} (allowed "
        f"{report.tolerance:.2g}){on_samples}, {units.size(report.size_bytes)}"
    )


_FORMATS = {"litert": "LiteRT", "onnx": "ONNX"}


def notes(
    reference: Reference,
    inspection: Inspection,
    allow_operators: Sequence[str] = (),
) -> Iterator[str]:
    """Yields sentences for the report of an artifact.

    Args:
        reference: What it was run with.
        inspection: What it is.
        allow_operators: Operators that the user allowed it.
    """
    if (
        reference.quantization in MODES
        and inspection.kind == "litert"
        and inspection.quantization is None
    ):
        yield _unquantized(reference)
    if inspection.kind in _FORMATS:
        for signature in reference.signatures:
            if signature.strings is not None:
                yield _cut(signature, _FORMATS[inspection.kind])
    for signature in reference.signatures:
        for name, own in signature.own_names.items():
            yield (
                f"the output {own} is called {name} in it: an input is called "
                f"{own}, and ONNX has each name once"
            )
    absent = [n for n in allow_operators if n not in inspection.operators]
    if absent:
        yield (
            f"allowed, but not in the artifact: {', '.join(absent)}. "
            "They can be left out of `allow_operators` (--allow-op)"
        )


def _unquantized(reference: Reference) -> str:
    """That a mode of quantization left every weight as it was."""
    sizes = [
        math.prod(weight.shape)
        for signature in reference.signatures
        for weight in signature.model.weights
    ]
    reason = "the model has no weights"
    if sizes:
        reason = (
            "LiteRT keeps weights of fewer than 1,024 numbers in float32, and "
            f"the largest of this model has {max(sizes):,}"
        )
    return (
        f"{reference.quantization} quantized nothing: {reason}. Leave out "
        "`quantization` (--quantization), or take float16, which has no such "
        "limit"
    )


def _cut(signature: Signature, kind: str) -> str:
    """That a signature begins where its model's strings have become numbers."""
    assert signature.strings is not None
    whole = signature.strings.signature.specs
    texts = [name for name, spec in whole.items() if spec.dtype == "string"]
    numbers = [name for name in signature.specs if name not in whole]
    # A name of strings may be that of the numbers as well.
    numbers += [name for name in texts if name in signature.specs]
    return (
        f"{signature.name} takes {', '.join(numbers)} in place of the strings "
        f"{', '.join(texts)}: {kind} holds no strings, so the application must "
        "prepare them as the model's own layers do"
    )
