"""The report of a verification."""

import dataclasses
import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.inspect import Inspection
from keras_posenc.export.model_protocol import Offers
from keras_posenc.export.probes.compare import Difference, has_nan
from keras_posenc.export.probes.every_id import untried_ids
from keras_posenc.export.probes.generate import (
    LARGE_INTEGERS,
    Probe,
    has_many_weights,
)
from keras_posenc.export.probes.likelihoods import Likelihoods
from keras_posenc.export.probes.quality import Quality
from keras_posenc.export.probes.reference import Reference
from keras_posenc.export.probes.samples import describe_example
from keras_posenc.export.probes.tolerance import MODES
from keras_posenc.export.processor import processor
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.keras_internals import called_for_training
from keras_posenc.progress import printable


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaseReport(Difference):
    """Result of one batch of inputs: how far the file's outputs are off.

    Attributes:
        signature: Name of the signature.
        inputs: The inputs, as text.
        milliseconds: Median time of a call in the runtime.
        error: What the runtime raised, or None.
        is_nan: Whether the model's outputs have no finite number.
        is_sample: Whether the caller gave the batch as a sample.
        near_ties: Number of examples with another choice, such as a token, that
            the model rates equal within the tolerance. The choice is then
            compared with the model's outputs for this choice.
        is_extreme: Whether the inputs are extreme: zeros, very large or very
            small numbers.
        examples: Number of examples in the batch.
        likelihoods: Of a generator: likelihoods of texts under the model and
            under the file.
    """

    signature: str
    inputs: str
    milliseconds: float = 0.0
    error: str | None = None
    is_nan: bool = False
    is_sample: bool = False
    near_ties: int = 0
    is_extreme: bool = False
    examples: int = 1
    likelihoods: Likelihoods | None = None

    def __str__(self) -> str:
        found = f"{self.largest_difference:.2g}"
        if self.likelihoods is not None:
            found = likelihoods_text(self.likelihoods, {})
        if self.milliseconds:
            found += f", {units.time(self.milliseconds / 1e3)}"
        text = f"{self.signature}, {self.inputs}: {self.error or found}"
        if self.near_ties:
            text += f", near-ties in {units.count(self.near_ties, 'example')}"
        return printable(text)


@dataclasses.dataclass(frozen=True)
class WeightBits:
    """How `quantization="auto"` stores one weight.

    Attributes:
        name: Its path in the model, or else the operator that reads it.
        numbers: How many numbers it has.
        mode: Its mode, such as `"int4"` or `"float32"`.
        loss: What the outputs lose if it alone is in this mode: of vectors 1
            minus the cosine, of logits the KL divergence, of scores half the
            sum of squared differences. 0 for float16, which is not measured.
        losses: What they lose in each mode that it may have.
    """

    name: str
    numbers: int
    mode: str
    loss: float
    losses: dict[str, float]


@dataclasses.dataclass(frozen=True)
class AutoQuantization:
    """What `quantization="auto"` has found.

    Attributes:
        keep: The share of quality that was to be kept.
        measures: How each output was measured, as text.
        quality: The share that the held out samples keep, in the output that
            keeps least.
        error: Its standard error.
        held_out: How many samples were held out.
        samples: How many samples were used in all.
        float32_bytes: Size of the file in float32.
        weights: How each weight is stored.
        recipe: The recipe, for `quantization`; empty for float32.
    """

    keep: float
    measures: dict[str, str]
    quality: float
    error: float
    held_out: int
    samples: int
    float32_bytes: int
    weights: list[WeightBits]
    recipe: list[dict[str, Any]]

    def __str__(self) -> str:
        counts: dict[str, int] = {}
        for weight in self.weights:
            counts[weight.mode] = counts.get(weight.mode, 0) + 1
        modes = ", ".join(
            f"{units.count(count, 'weight')} in {mode}"
            for mode, count in sorted(counts.items())
        )
        measures = ", ".join(
            f"{measure} of {name}" for name, measure in self.measures.items()
        )
        text = (
            f"auto: {measures}: {self.quality:.4f}{self._certainty} on "
            f"{units.count(self.held_out, 'sample')} held out (required "
            f"{self.keep:g}); {units.size(self.float32_bytes)} in float32; "
            f"{modes}"
        )
        if not self.recipe:
            text += ". No weight could have fewer bits: the file is in float32"
        return text

    @property
    def _certainty(self) -> str:
        """How far the quality may be from that on other samples."""
        if self.quality < 1 or not self.recipe:
            return f" ± {2 * self.error:.4f}"
        # No loss was seen, which is no error of 0: a file that keeps less than
        # this would show one in 19 of 20 draws.
        least = 0.05 ** (1 / self.held_out)
        return f" (with 95% confidence at least {least:.4f})"

    def table(self) -> str:
        """Returns a line for each weight, that with the largest loss first."""
        lines = ["weight: numbers, mode, loss alone in each mode"]
        for each in sorted(self.weights, key=lambda x: -max(x.losses.values())):
            losses = ", ".join(
                f"{mode} {loss:.2g}"
                for mode, loss in each.losses.items()
                if mode not in ("float16", "float32")
            )
            lines.append(
                f"  {each.name}: {each.numbers:,}, {each.mode}"
                + f" ({losses})" * bool(losses)
            )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class EngineReport:
    """What LiteRT-LM's engine made of a package.

    Attributes:
        texts: Number of texts whose ids are those of the model's tokenizer.
        continuations: Number of prompts that it continued.
        equal: Number of these with the model's own continuation.
        near_ties: Number of these that differ only where the model rates two
            tokens equal within rounding.
        log_probabilities: Number of log-probabilities compared.
        largest_difference: Largest difference of these, in nats.
        allowed_difference: Largest difference allowed; None for a quantized
            file, whose likelihoods are compared.
        turns: Number of turns of a chat that were compared; 0 without a
            template, or without room for a chat.
    """

    texts: int
    continuations: int
    equal: int
    near_ties: int
    log_probabilities: int
    largest_difference: float
    allowed_difference: float | None
    turns: int

    def __str__(self) -> str:
        allowed = self.allowed_difference
        limit = "" if allowed is None else f" (allowed {allowed:.2g})"
        parts = [
            f"{units.count(self.texts, 'text')} tokenized equally",
            f"{self.equal} of {self.continuations} continuations equal"
            + f", {self.near_ties} up to a near-tie" * bool(self.near_ties),
            f"{self.log_probabilities} log-probabilities within "
            f"{self.largest_difference:.2g}{limit}",
            f"{units.count(self.turns, 'turn')} of a chat"
            if self.turns
            else "no chat",
        ]
        return f"in LiteRT-LM's engine: {'; '.join(parts)}"


def as_jsonable(record: Any) -> dict[str, Any]:
    """Returns a dataclass as a dict that JSON can hold."""
    return {
        key: jsonable(value) if isinstance(value, float) else value
        for key, value in dataclasses.asdict(record).items()
    }


def jsonable(number: float) -> float | None:
    """Returns a number, or None in place of NaN and infinity."""
    return number if math.isfinite(number) else None


@dataclasses.dataclass(frozen=True, repr=False)
class VerificationReport:
    """Result of running an exported model in a fresh process.

    `str(report)` is one line, followed by lines for what needs attention;
    `report.details()` lists every case. `bool(report)` is `report.passed`.

    Attributes:
        path: The exported file or folder.
        kind: `"saved_model"`, `"litert"` or `"onnx"`.
        size_bytes: Size of the file or folder.
        load_seconds: Time to load it.
        foreign_operators: Operators that the plain runtime lacks.
        unverified: Signatures that were not compared.
        tolerance: Largest difference allowed.
        cases: One `CaseReport` for each batch of inputs.
        skipped: Batches that the model itself rejects, as text, such as
            sequences shorter than a convolution.
        constant_outputs: Outputs that hardly depend on the inputs, such as
            scores of a saturated softmax. For these a small difference says
            little.
        unchecked_columns: Columns, as text, whose numbers are so small
            compared with other columns of the output that fewer than two digits
            were checked.
        quality: How near each output of a quantized file is to the model's, by
            `signature/output`.
        limits: The limits of a quantized file by name: see `verify`.
        in_float32: Whether a model of mixed precision was run in float32, as
            its LiteRT file computes.
        quantization: The file's mode of quantization, or None.
        warmup: Number of warm-up requests of a SavedModel that were replayed.
            None if it has some and tensorflow-serving-api, which reads them, is
            not installed.
        eager_differences: Where the model's eager code gives other outputs than
            its graph, which the file holds, as text.
        padding_matters: Whether zeros after an example's ids change its
            outputs. A server must not batch examples of different lengths then.
        fixed_shapes: Inputs that take one shape in the file and any shape in
            the model, as text.
        different_weights: Weights that are not those of the file, by their
            paths: they have changed since the export, or a SavedModel stores
            others. If there are any, the verification fails.
        notes: Further remarks, as text, such as that quantization changed
            nothing.
        compiled_model: How LiteRT's `CompiledModel` compares with its
            Interpreter, which the cases are of, as text that begins with
            "equal", "different" or "not run"; empty if it does not run such
            files. A difference does not fail the verification.
        mediapipe: Number of texts for which MediaPipe itself gave the model's
            outputs, for a file of a task; None if MediaPipe was not run.
        token_ids: Number of texts of which LiteRT-LM's engine made the ids of
            the model's tokenizer, for its packages; None for other files.
        engine: What LiteRT-LM's engine made of a package, or None.
        auto: What `quantization="auto"` has found, or None.
        by_likelihood: Signatures of a quantized generator, whose likelihoods of
            texts were compared instead of its outputs.
    """

    path: Path
    kind: str
    size_bytes: int
    load_seconds: float
    foreign_operators: list[str]
    unverified: list[str]
    tolerance: float
    cases: list[CaseReport]
    skipped: list[str] = dataclasses.field(default_factory=list)
    constant_outputs: list[str] = dataclasses.field(default_factory=list)
    in_float32: bool = False
    quantization: str | None = None
    warmup: int | None = 0
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    padding_matters: bool = False
    fixed_shapes: list[str] = dataclasses.field(default_factory=list)
    unchecked_columns: list[str] = dataclasses.field(default_factory=list)
    quality: dict[str, Quality] = dataclasses.field(default_factory=dict)
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    different_weights: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    compiled_model: str = ""
    mediapipe: int | None = None
    token_ids: int | None = None
    engine: EngineReport | None = None
    auto: AutoQuantization | None = None
    by_likelihood: list[str] = dataclasses.field(default_factory=list)

    @property
    def likelihoods(self) -> Likelihoods | None:
        """Likelihoods of texts under a generator and its file, if compared."""
        found = [x.likelihoods for x in self.cases if x.likelihoods is not None]
        return functools.reduce(operator.add, found) if found else None

    @property
    def too_lossy(self) -> dict[str, str]:
        """What loses more than the limits allow, with its numbers as text.

        By output, and by signature of a quantized generator.
        """
        return {
            name: found.text(self.limits)
            for name, found in self.quality.items()
            if found.too_low(self.limits)
        } | {
            name: likelihoods_text(found, self.limits)
            for name, found in self.likelihoods_of.items()
            if found.too_high(self.limits)
        }

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
    def on_samples(self) -> bool:
        """Whether there were samples, on which alone `quality` is measured."""
        return any(case.is_sample for case in self.cases)

    @property
    def required_cases(self) -> list[CaseReport]:
        """The cases whose difference must be within the tolerance.

        Of a quantized file these are the samples, if there are any. For all
        other inputs its outputs must only be finite.
        """
        if self.quantization is None:
            return self.cases
        return [
            case
            for case in self.cases
            if case.is_sample or math.isinf(case.largest_difference)
        ] or self._usual

    @property
    def _usual(self) -> list[CaseReport]:
        return [case for case in self.cases if not case.is_extreme]

    @property
    def worst(self) -> CaseReport:
        """The required case with the largest difference."""
        return max(
            self.required_cases, key=lambda case: case.largest_difference
        )

    @property
    def largest_difference(self) -> float:
        """The largest difference of all required cases."""
        return self.worst.largest_difference

    @property
    def samples_only(self) -> list[str]:
        """Signatures that were run on nothing but the samples."""
        invented = {
            case.signature for case in self._usual if not case.is_sample
        }
        ran = dict.fromkeys(case.signature for case in self.cases)
        return [name for name in ran if name not in invented]

    @property
    def passed(self) -> bool:
        """Whether the exported model reproduces the model.

        Every difference must be within the tolerance. A quantized file's
        outputs must be finite, and lose no more than `limits` allow. Outputs
        that are NaN throughout fail: they prove nothing. Test inputs cannot
        reach every weight, so `different_weights` count too.
        """
        return (
            self._is_near(self.worst)
            and not self.too_lossy
            and not self.different_weights
            and not all(case.is_nan for case in self.cases)
        )

    def _is_near(self, case: CaseReport) -> bool:
        if self.quantization is not None:
            return math.isfinite(case.largest_difference)
        return case.largest_difference <= self.tolerance

    def __bool__(self) -> bool:
        return self.passed

    def require_success(self) -> None:
        """Raises `ExportVerificationError` with the reason if it failed."""
        reason = failure(self)
        if reason is not None:
            raise ExportVerificationError(reason, self)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict that JSON can hold."""
        return {
            **dataclasses.asdict(self),
            "path": str(self.path),
            "passed": self.passed,
            "largest_difference": jsonable(self.largest_difference),
            "samples_only": self.samples_only,
            "limits": {name: jsonable(x) for name, x in self.limits.items()},
            "quality": {
                name: as_jsonable(found) for name, found in self.quality.items()
            },
            "likelihoods": self._likelihoods_as_dict(),
            "cases": [as_jsonable(case) for case in self.cases],
        }

    def _likelihoods_as_dict(self) -> dict[str, Any] | None:
        found = self.likelihoods
        if found is None:
            return None
        names = "perplexity file_perplexity perplexity_ratio kl chosen_ratio"
        return {
            **{name: jsonable(getattr(found, name)) for name in names.split()},
            "tokens": found.tokens,
            "chosen": found.chosen,
        }

    def __repr__(self) -> str:
        return f"<VerificationReport of {summary(self)}>"

    def __str__(self) -> str:
        return "\n".join(map(printable, [summary(self), *remarks(self)]))

    def details(self) -> str:
        """Returns the report with all remarks and every case."""
        return details(self)


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

    @classmethod
    def published(
        cls, path: Path, report: VerificationReport | None
    ) -> "ExportedModel":
        """Returns a model that was verified elsewhere and is now at `path`."""
        if report is not None:
            report = dataclasses.replace(report, path=path)
        return cls(path, report)


_LINES = 8  # most lines of one signature's samples in a report
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}


def failure(report: Any) -> str | None:
    """Returns why a verification failed, or None."""
    if report.passed:
        return None
    wrong = _wrong_outputs(report)
    if wrong is None:
        return f"The outputs match, but {_other_weights(report)}"
    return wrong


def _other_weights(report: Any) -> str:
    """Returns that the file has other weights, and a remedy."""
    return (
        "the file has other weights than the model: "
        f"{units.some(report.different_weights)}. If the model was trained "
        "after the export, export it again"
    )


def _wrong_outputs(report: Any) -> str | None:
    """Returns what is wrong with the outputs, or None."""
    worst = report.worst
    if report._is_near(worst):
        if report.too_lossy:
            return _lossy(report)
        if all(case.is_nan for case in report.cases):
            return "The model's outputs are all NaN, so nothing was verified"
        return None
    failed = sum(not report._is_near(case) for case in report.required_cases)
    reason = worst.error or (
        f"largest difference {worst.largest_difference:.3g} (allowed "
        f"{report.tolerance:.3g}), relative to the output's size, in "
        f"{worst.where}"
    )
    if worst.error is None and report.quantization is not None:
        reason = f"a number is not finite, and the model's is, in {worst.where}"
    if worst.error is None and worst.where.endswith(LARGE_INTEGERS):
        runtime = _RUNTIMES.get(report.kind, "the runtime")
        reason += (
            f". In {runtime} an operator of the model computes with such "
            "integers in float32, which rounds above 16,777,216. Use "
            "export_saved_model, or subtract a constant from such inputs "
            "before they reach the model"
        )
    elif worst.error is None and worst.is_extreme and report.kind in _RUNTIMES:
        reason += (
            f". {_RUNTIMES[report.kind]} computes an operator of the model "
            "differently for such inputs. Use export_saved_model, which keeps "
            "the model's own operators; or limit the operator's inputs: "
            "keras.ops.clip(x, -30, 30) if they are large, "
            "keras.ops.maximum(x, 1e-6) if it divides by x"
        )
    elif worst.error is None and report.different_weights:
        reason += f"; {_other_weights(report)}"
    elif worst.error is None and worst.largest_difference < 1e-3:
        enough = 10.0 ** math.ceil(math.log10(worst.largest_difference))
        reason += (
            ". If the model was trained after the export, export it again. If "
            "this is rounding, which grows with the length and with many "
            f"equal tokens, give `tolerance={enough:.0e}` "
            f"(--tolerance {enough:.0e})"
        )
    return (
        "The exported model does not reproduce the model's outputs in "
        f"{failed:,} of {units.count(len(report.cases), 'case')}. Signature "
        f"'{worst.signature}', {worst.inputs}: "
        + ". ".join([reason, *report.eager_differences])
    )


def _lossy(report: Any) -> str:
    """Returns which outputs lose too much, and remedies."""
    finer = "use quantization='float16' (--quantization float16), or "
    finer *= report.kind != "onnx" and report.quantization != "float16"
    what = "; ".join(map(": ".join, report.too_lossy.items()))
    samples = ""
    if not report.on_samples:
        samples = (
            ". Outputs of generated inputs may change more than those of real "
            "ones: give some as `samples` (--samples)"
        )
    return (
        f"The {report.quantization} file is too far from the model: {what}"
        f"{samples}. If the model was trained after the export, export it "
        f"again. Else {finer}allow it by `limits` (--limit)"
    )


def details(report: Any) -> str:
    """Returns a report with all remarks and every case."""
    lines = [str(report), f"loaded in {units.time(report.load_seconds)}"]
    if report.in_float32:
        lines.append(
            "compared with the model in float32, in which the file computes: "
            "the model's mixed precision rounds differently"
        )
    if report.skipped:
        lines.append(
            f"skipped, because the model itself rejects them: "
            f"{'; '.join(report.skipped)}"
        )
    if report.warmup:
        requests = units.count(report.warmup, "warm-up request")
        lines.append(f"replayed {requests}")
    if report.compiled_model.startswith("equal"):  # else it is a remark
        lines.append(f"CompiledModel: {report.compiled_model}")
    if report.mediapipe is not None:
        lines.append(
            "MediaPipe gave the model's outputs for "
            f"{units.count(report.mediapipe, 'text')}"
        )
    if report.token_ids is not None:
        lines.append(
            "LiteRT-LM's engine made the tokenizer's ids of "
            f"{units.count(report.token_ids, 'text')}"
        )
    if report.auto is not None:
        lines += map(printable, report.auto.table().split("\n"))
    lines.append("signature, inputs: largest difference, time of one call")
    for name in dict.fromkeys(case.signature for case in report.cases):
        samples = [
            case
            for case in report.cases
            if case.is_sample and case.signature == name
        ]
        lines += [f"  {case}" for case in samples[:_LINES]]
        if len(samples) > _LINES:
            worst = max(samples, key=lambda case: case.largest_difference)
            more = units.count(len(samples) - _LINES, "more case")
            lines.append(
                f"  {name}, {more} of samples; largest difference of all: "
                f"{worst}"
            )
    lines += [f"  {case}" for case in report.cases if not case.is_sample]
    return "\n".join(lines)


def remarks(report: Any) -> list[str]:
    """Returns what needs attention, or was not verified."""
    lines = [
        failure(report),
        _weak_check(report),
        *report.fixed_shapes,
        *report.notes,
    ]
    lines = [line for line in lines if line]
    if report.passed:  # else the reason has them
        lines += report.eager_differences
    if report.compiled_model and not report.compiled_model.startswith("equal"):
        lines.append(f"CompiledModel: {report.compiled_model}")
    if report.engine is not None:
        lines.append(str(report.engine))
    if report.auto is not None:
        lines.append(str(report.auto))
    if ties := sum(case.near_ties for case in report.cases):
        lines.append(
            f"near-ties: {units.count(ties, 'example')} with another choice, "
            "where the model's own leads by no more than the tolerance; scores "
            "are those that the model computes for this choice"
        )
    if report.foreign_operators:
        lines.append(
            f"needs operators that the plain runtime lacks: "
            f"{', '.join(report.foreign_operators)}"
        )
    inputs = "the samples" if report.on_samples else "generated inputs"
    for name, found in report.quality.items():
        if name not in report.too_lossy:
            lines.append(
                f"{name}, {report.quantization}, on {inputs}: "
                f"{found.text(report.limits)}"
            )
    if report.likelihoods is not None and not report.too_lossy:
        lines.append(likelihoods_text(report.likelihoods, report.limits))
    if report.quantization == "int8-static" and not report.on_samples:
        lines.append(
            "correct only for inputs like those of its calibration: give some "
            "as `samples` (--samples) to verify it"
        )
    if report.unchecked_columns:
        lines.append(
            "columns too small to be checked next to the others: "
            f"{', '.join(report.unchecked_columns)}"
        )
    if report.samples_only:
        lines.append(
            "run only on the samples, without other lengths and batch sizes: "
            f"{', '.join(report.samples_only)}"
        )
    if report.padding_matters:
        lines.append(
            "padding changes the outputs: do not let a server batch examples "
            "of different lengths"
        )
    if report.warmup is None:
        lines.append(
            "warm-up requests were not replayed: pip install "
            "'keras-posenc[serving]'"
        )
    if report.unverified:
        line = f"not verified: {', '.join(report.unverified)}"
        if any("/" in each for each in report.unverified):
            line += ". Give the export's `labels` (--labels)"
        lines.append(line)
    return lines


def _weak_check(report: Any) -> str | None:
    """Returns which outputs vary too little to show a wrong file, or None."""
    if not report.constant_outputs:
        return None
    inputs, remedy = "these inputs", ""
    if not report.on_samples:
        # The engine of a package compares texts, and its steps take none.
        if report.engine is None:
            remedy = ". Give real inputs as `samples` (--samples)"
    elif report.quantization:  # compared on the samples alone
        inputs = "the samples"
        remedy = ". Give `samples` (--samples) that differ more"
    return (
        f"weak check: over {inputs} the model's outputs hardly vary: "
        f"{', '.join(report.constant_outputs)}{remedy}"
    )


def likelihoods_text(found: Likelihoods, limits: Mapping[str, float]) -> str:
    """Returns perplexities and the KL divergence, with their limits if any."""

    def allowed(name: str) -> str:
        return f" (at most {limits[name]:g})" if name in limits else ""

    parts = []
    if found.tokens:
        parts.append(
            f"perplexity {found.file_perplexity:.4g}, and the model's "
            f"{found.perplexity:.4g}, on "
            f"{units.count(found.tokens, 'token')}: "
            f"{found.perplexity_ratio:.4g} times{allowed('perplexity')}"
        )
    if found.drawn:
        parts.append(
            f"KL divergence {found.kl:.2g} nats per token{allowed('kl')}"
        )
    if found.chosen:
        parts.append(
            "perplexity of the generated text, under the model "
            f"{found.chosen_ratio:.4g} times that of its most likely tokens"
            f"{allowed('perplexity')}"
        )
    return "; ".join(parts) or "no token compared"


def summary(report: Any) -> str:
    """Returns the result in one line."""
    count, required = len(report.cases), len(report.required_cases)
    on_samples = ""
    # If only samples are compared, say so.
    if required < count and report.required_cases[0].is_sample:
        examples = sum(case.examples for case in report.required_cases)
        on_samples = f" on the {units.count(examples, 'sample')}"
    verdict = "verified" if report.passed else "FAILED"
    what = (
        f"largest difference {report.largest_difference:.2g} (allowed "
        f"{report.tolerance:.2g})"
    )
    if report.quantization and math.isfinite(report.largest_difference):
        what = _largest_loss(report)
    return (
        f"{report.path}: {verdict}: {units.count(count, 'case')}, {what}"
        f"{on_samples}, {units.size(report.size_bytes)}"
    )


def _largest_loss(report: Any) -> str:
    """Returns what a quantized file loses: a KL divergence or an SQNR."""
    found = report.likelihoods_of.values()
    measures = {
        f"KL divergence {each.kl:.2g} nats per token (at most "
        f"{report.limits['kl']:g})": -each.kl
        for each in found
        if each.drawn
    } or {
        f"perplexity {each.perplexity_ratio:.4g} times the model's (at most "
        f"{report.limits['perplexity']:g})": -each.perplexity_ratio
        for each in found
        if each.tokens
    }
    for each in report.quality.values():
        if each.sqnr is not None:
            one = Quality(each.rows, each.sqnr)
            measures[one.text(report.limits)] = each.sqnr
    return min(measures, key=measures.__getitem__, default="finite outputs")


_FORMATS = {"litert": "LiteRT", "onnx": "ONNX"}
_ROUNDED = {**_FORMATS, "litertlm": "LiteRT"}


def notes(
    reference: Reference,
    inspection: Inspection,
    allow_operators: Sequence[str] = (),
) -> Iterator[str]:
    """Yields sentences for the report.

    Args:
        reference: The model's outputs.
        inspection: The exported model.
        allow_operators: Operators that the user allowed.
    """
    if reference.quantization in MODES and inspection.kind in _ROUNDED:
        if inspection.quantization is None:
            yield _unquantized(reference, inspection.kind)
        elif inspection.kind == "onnx":
            yield (
                f"what {inspection.quantization} loses was measured on this "
                f"processor: {processor()}"
            )
    if inspection.kind in _FORMATS:
        for signature in reference.signatures:
            if signature.strings is not None:
                yield _cut(signature, _FORMATS[inspection.kind])
    for signature in reference.signatures:
        for name, own in signature.own_names.items():
            yield (
                f"output {own} is named {name} in the file: an input has the "
                f"name {own}, and names in ONNX are unique"
            )
    untried = {each.name: untried_ids(each) for each in reference.signatures}
    if names := [name for name, count in untried.items() if count]:
        yield (
            f"not each of {units.count(max(untried.values()), 'id')} was run, "
            f"which would take long, in {', '.join(names)}"
        )
    for signature in reference.signatures:
        if signature.grid_axes:
            yield from _sizes(signature, reference)
        elif has_many_weights(signature):
            yield from _longest(signature, reference)
    yield from reference.notes
    for probe in reference.usual:
        if has_nan(probe.outputs):
            yield _of_nan(probe)
            break
    drawn = {
        name: None
        for signature in reference.signatures
        for name in called_for_training(signature.model)
    }
    if drawn:
        yield (
            "called with training=True in the model, which neither "
            f"model.predict nor the file does: {', '.join(drawn)}"
        )
    absent = [n for n in allow_operators if n not in inspection.operators]
    if absent:
        yield (
            "allowed operators that the file does not have: "
            f"{', '.join(absent)}. Leave them out of `allow_operators` "
            "(--allow-op)"
        )


def _longest(signature: Signature, reference: Reference) -> Iterator[str]:
    """Yields the length of the longest input, if its length is dynamic."""
    lengths = [
        size
        for probe in reference.probes
        if probe.signature == signature.name
        for name, spec in signature.specs.items()
        for size, fixed in zip(
            probe.inputs[name].shape[1:], spec.shape[1:], strict=True
        )
        if fixed is None
    ]
    if lengths:
        yield (
            f"{signature.name} was run on few inputs, as the model is large: "
            f"the longest has {units.count(max(lengths), 'step')}. For longer "
            "ones give `max_length` (--max-length)"
        )


def _sizes(signature: Signature, reference: Reference) -> Iterator[str]:
    """Yields the sizes of invented images, or other grids."""
    name, spec = max(
        signature.specs.items(), key=lambda item: item[1].shape.count(None)
    )
    sizes = [
        " x ".join(
            str(size)
            for size, fixed in zip(
                probe.inputs[name].shape[1:], spec.shape[1:], strict=True
            )
            if fixed is None
        )
        for probe in reference.usual
        if probe.signature == signature.name and not probe.is_sample
    ]
    if sizes:
        yield (
            f"{signature.name} was run on inputs of the sizes "
            f"{', '.join(dict.fromkeys(sizes))}. For larger ones give "
            "`max_length` (--max-length)"
        )


AGAINST_NAN = (
    "Change the model so that it gives a number: GlobalAveragePooling1D "
    "divides by zero where all steps are masked, and kp.Pooling1D('mean') "
    "gives zeros"
)


def _of_nan(probe: Probe) -> str:
    """Returns that the model gives NaN, and for which example."""
    output = next(x for x in probe.outputs.values() if has_nan({"": x}))
    example = describe_example(
        probe.inputs, output, np.argwhere(np.isnan(output))[0]
    )
    remedy = AGAINST_NAN
    if has_nan(probe.inputs):
        remedy = "These inputs hold NaN themselves: give numbers as samples"
    return f"the model itself gives NaN for {example}. {remedy}"


def _unquantized(reference: Reference, kind: str) -> str:
    sizes = [
        math.prod(weight.shape)
        for signature in reference.signatures
        for weight in signature.model.weights
    ]
    reason = "the model has no weights"
    if sizes:
        reason = (
            f"{_ROUNDED[kind]} keeps weights of fewer than 1,024 numbers in "
            f"float32, and the largest of this model has {max(sizes):,}"
        )
    if max(sizes, default=0) >= 1024:
        reason = "no large weight is in an operator that is quantized"
    remedy = ", or use float16, which has no such limit" * (kind != "onnx")
    return (
        f"{reference.quantization} quantized nothing: {reason}. Leave out "
        f"`quantization` (--quantization){remedy}"
    )


def _call_of(layer: str, values: str, dtype: str) -> str:
    """Returns the code that calls a layer on texts or other values.

    Keras's lookups return integers where their tensors say floats.
    """
    call = f"model.get_layer('{layer}')({values})"
    return call if "int" in dtype else f"keras.ops.cast({call}, '{dtype}')"


def _cut(signature: Signature, kind: str) -> str:
    strings = signature.strings
    assert strings is not None
    whole = strings.signature.specs.values()
    has_texts = any(spec.dtype == "string" for spec in whole)
    made = {name: signature.specs[name] for name in strings.layers}
    are_ids = all("int" in spec.dtype for spec in made.values())
    inputs = ", ".join(
        f"{name} ({spec.dtype} {tuple(spec.shape)})"
        for name, spec in made.items()
    )
    if has_texts:
        what = f"{'token ids' if are_ids else 'numbers'}, not strings"
        lacks, values = "takes none", "texts"
    else:
        what = "what lookups return, not the values that they look up"
        lacks, values = "has no tables", "values"
    note = (
        f"{signature.name} takes {what}: {kind} {lacks}. The application must "
        f"make {inputs} as the model's own layers do"
    )
    calls = ", ".join(
        f"{name} = {_call_of(layer, values, made[name].dtype)}"
        for name, layer in strings.layers.items()
        if layer is not None
    )
    if calls:
        note = f"{note}; in Python, {calls}"
    more = Offers.of(strings.signature.model).ids_note
    return f"{note}. {more}" if more and are_ids else note
