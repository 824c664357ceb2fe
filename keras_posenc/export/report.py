"""The report of a verification."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from keras_posenc.export import units
from keras_posenc.export.errors import ExportVerificationError
from keras_posenc.export.probes.compare import Difference
from keras_posenc.export.probes.extremes import LARGE_INTEGERS
from keras_posenc.export.probes.likelihoods import Likelihoods
from keras_posenc.export.probes.quality import Quality
from keras_posenc.export.probes.reference import Reference
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
        undetermined: Number of examples that were not compared, as rounding
            decides the model's own outputs.
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
    undetermined: int = 0

    def is_right(self, of: "Reference | VerificationReport") -> bool:
        """Whether the difference is within the tolerance.

        Outputs of a quantized file must only be finite: what they lose is
        measured over all cases.
        """
        if of.quantization is not None:
            return math.isfinite(self.largest_difference)
        return self.largest_difference <= of.tolerance

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


def jsonable(value: Any) -> Any:
    """Returns what JSON can hold: None in place of NaN and infinity."""
    if isinstance(value, dict):
        return {key: jsonable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [jsonable(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


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
        constant_outputs: Outputs that hardly depend on the inputs, such as
            scores of a saturated softmax. For these a small difference says
            little.
        quality: How near each output of a quantized file is to the model's, by
            `signature/output`.
        limits: The limits of a quantized file by name: see `verify_export`.
        given_limits: The names of those that the caller gave.
        in_float32: Whether a model of mixed precision was run in float32, as
            its LiteRT file computes.
        quantization: The file's mode of quantization, or None.
        warmup: Number of warm-up requests of a SavedModel that were replayed.
            None if it has some and tensorflow-serving-api, which reads them, is
            not installed.
        different_weights: Weights that are not those of the file, by their
            paths: they have changed since the export, or a SavedModel stores
            others. If there are any, the verification fails.
        eager_differences: Where the model called directly gives other outputs
            than its graph, as text. The file is compared with the graph.
        notes: Further remarks, as text, such as that inputs take one shape in
            the file and any shape in the model.
        compiled_model: How LiteRT's `CompiledModel` compares with its
            Interpreter, which the cases are of, as text that begins with
            "equal", "different" or "not run"; empty if it does not run such
            files. A difference does not fail the verification.
        mediapipe: Number of texts for which MediaPipe itself gave the model's
            outputs, for a file of a task; None if MediaPipe was not run.
        token_ids: Number of texts of which LiteRT-LM's engine made the ids of
            the model's tokenizer, for its packages; None for other files.
        engine: What LiteRT-LM's engine made of a package, or None.
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
    constant_outputs: list[str] = dataclasses.field(default_factory=list)
    in_float32: bool = False
    quantization: str | None = None
    warmup: int | None = 0
    quality: dict[str, Quality] = dataclasses.field(default_factory=dict)
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    given_limits: list[str] = dataclasses.field(default_factory=list)
    different_weights: list[str] = dataclasses.field(default_factory=list)
    eager_differences: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    compiled_model: str = ""
    mediapipe: int | None = None
    token_ids: int | None = None
    engine: EngineReport | None = None
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
    def is_off(self) -> bool:
        """Whether a required case is not right."""
        return not self.worst.is_right(self)

    @property
    def samples_only(self) -> list[str]:
        """Signatures that were run on nothing but the samples."""
        invented = {
            case.signature for case in self._usual if not case.is_sample
        }
        ran = dict.fromkeys(case.signature for case in self.cases)
        return [name for name in ran if name not in invented]

    @property
    def unmeasured_limits(self) -> list[str]:
        """The caller's limits for which nothing was measured."""
        measured = {
            name
            for each in self.quality.values()
            for name, value in dataclasses.asdict(each).items()
            if value is not None
        }
        for each in self.likelihoods_of.values():
            measured |= {"kl"} if each.drawn else set()
            measured |= {"perplexity"} if each.tokens or each.chosen else set()
        return [name for name in self.given_limits if name not in measured]

    @property
    def failure(self) -> str | None:
        """Why the exported model does not reproduce the model, or None."""
        for fails, text, remedy in _FAILURES:
            if fails(self):
                return ". ".join(filter(None, [text(self), remedy]))
        return None

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
        found = self.likelihoods
        names = (
            *("perplexity", "file_perplexity", "perplexity_ratio", "kl"),
            *("chosen_ratio", "tokens", "chosen"),
        )
        likelihoods = found and {name: getattr(found, name) for name in names}
        record: dict[str, Any] = jsonable(
            {
                **dataclasses.asdict(self),
                "passed": self.passed,
                "largest_difference": self.largest_difference,
                "samples_only": self.samples_only,
                "unmeasured_limits": self.unmeasured_limits,
                "likelihoods": likelihoods,
            }
        )
        return record

    @property
    def summary(self) -> str:
        """The result in one line."""
        count, required = len(self.cases), self.required_cases
        on_samples = ""
        # If only samples are compared, say so.
        if len(required) < count and required[0].is_sample:
            examples = sum(case.examples for case in required)
            on_samples = f" on the {units.count(examples, 'sample')}"
        verdict = "verified" if self.passed else "FAILED"
        what = (
            f"largest difference {self.largest_difference:.2g} (allowed "
            f"{self.tolerance:.2g})"
        )
        if self.quantization and math.isfinite(self.largest_difference):
            what = self._largest_loss
        return (
            f"{self.path}: {verdict}: {units.count(count, 'case')}, {what}"
            f"{on_samples}, {units.size(self.size_bytes)}"
        )

    @property
    def _largest_loss(self) -> str:
        """What a quantized file loses: a KL divergence or an SQNR."""
        found = self.likelihoods_of.values()
        if kl := [each.kl for each in found if each.drawn]:
            return (
                f"KL divergence {max(kl):.2g} nats per token (at most "
                f"{self.limits['kl']:g})"
            )
        if ratios := [each.perplexity_ratio for each in found if each.tokens]:
            return (
                f"perplexity {max(ratios):.4g} times the model's (at most "
                f"{self.limits['perplexity']:g})"
            )
        levels = [x.sqnr for x in self.quality.values() if x.sqnr is not None]
        if levels:
            return (
                f"SQNR {min(levels):.1f} dB (at least {self.limits['sqnr']:g})"
            )
        return "finite outputs"

    @property
    def remarks(self) -> list[str]:
        """What needs attention, or was not verified."""
        lines = [self.failure, self._weak_check, *self.notes]
        if not self.is_off:
            lines += self.eager_differences
        if not self.compiled_model.startswith("equal"):
            lines.append(self._compiled)
        lines.append(str(self.engine or ""))
        if self.foreign_operators:
            lines.append(
                "needs operators that the plain runtime lacks: "
                f"{', '.join(self.foreign_operators)}"
            )
        inputs = "the samples" if self.on_samples else "generated inputs"
        lines += [
            f"{name}, {self.quantization}, on {inputs}: "
            f"{found.text(self.limits)}"
            for name, found in self.quality.items()
            if name not in self.too_lossy
        ]
        if self.likelihoods is not None and not self.too_lossy:
            lines.append(likelihoods_text(self.likelihoods, self.limits))
        if self.quantization == "int8-static" and not self.on_samples:
            lines.append(
                "correct only for inputs like those of its calibration: give "
                "some as `samples` (--samples) to verify it"
            )
        if self.samples_only:
            lines.append(
                "run only on the samples, without other lengths and batch "
                f"sizes: {', '.join(self.samples_only)}"
            )
        if self.warmup is None:
            lines.append(
                "warm-up requests were not replayed: pip install "
                "'keras-posenc[serving]'"
            )
        unverified = self.unverified + [
            f"{name} of `limits` (nothing to measure)"
            for name in self.unmeasured_limits
        ]
        if unverified:
            line = f"not verified: {', '.join(unverified)}"
            if any("/" in each for each in self.unverified):
                line += ". Give the export's `labels` (--labels)"
            lines.append(line)
        return [line for line in lines if line]

    @property
    def _compiled(self) -> str:
        text = self.compiled_model
        return f"CompiledModel: {text}" if text else ""

    @property
    def _weak_check(self) -> str:
        """Which outputs vary too little to show a wrong file, as text."""
        if not self.constant_outputs:
            return ""
        return (
            "weak check: the model's outputs hardly vary between the inputs: "
            f"{', '.join(self.constant_outputs)}. Give real inputs that differ "
            "as `samples` (--samples)"
        )

    def __repr__(self) -> str:
        return f"<VerificationReport of {self.summary}>"

    def __str__(self) -> str:
        return "\n".join(map(printable, [self.summary, *self.remarks]))

    def details(self) -> str:
        """Returns the report with all remarks and every case."""
        lines = [f"loaded in {units.time(self.load_seconds)}"]
        if self.in_float32:
            lines.append(
                "compared with the model in float32, in which the file "
                "computes: the model's mixed precision rounds differently"
            )
        if self.warmup:
            requests = units.count(self.warmup, "warm-up request")
            lines.append(f"replayed {requests}")
        if self.compiled_model.startswith("equal"):  # else it is a remark
            lines.append(self._compiled)
        if self.mediapipe is not None:
            lines.append(
                "MediaPipe gave the model's outputs for "
                f"{units.count(self.mediapipe, 'text')}"
            )
        if self.token_ids is not None:
            lines.append(
                "LiteRT-LM's engine made the tokenizer's ids of "
                f"{units.count(self.token_ids, 'text')}"
            )
        lines.append("signature, inputs: largest difference, time of one call")
        lines += [f"  {case}" for case in self.cases]
        return "\n".join([str(self), *map(printable, lines)])


def _off(report: VerificationReport) -> str:
    worst = report.worst
    wrong = [x for x in report.required_cases if not x.is_right(report)]
    allowed = f"{report.tolerance:.3g}"
    if report.quantization is not None:
        allowed = "any that is finite"
    reason = worst.error or (
        f"largest difference {worst.largest_difference:.3g} (allowed "
        f"{allowed}), relative to the output's size, in {worst.where}"
    )
    return (
        "The exported model does not reproduce the model's outputs in "
        f"{len(wrong):,} of {units.count(len(report.cases), 'case')}. "
        f"Signature '{worst.signature}', {worst.inputs}: {reason}"
    )


def _almost(report: VerificationReport) -> str:
    enough = 10.0 ** math.ceil(math.log10(report.largest_difference))
    return (
        f"{_off(report)}. If this is rounding, which grows with the length and "
        f"with many equal tokens, give `tolerance={enough:.0e}` (--tolerance "
        f"{enough:.0e})"
    )


def _lossy(report: VerificationReport) -> str:
    what = "; ".join(map(": ".join, report.too_lossy.items()))
    return f"The {report.quantization} file is too far from the model: {what}"


def _other_weights(report: VerificationReport) -> str:
    return (
        "the file has other weights than the model: "
        f"{units.some(report.different_weights)}"
    )


_TRAINED = "If the model was trained after the export, export it again"
_LIMITS = (
    f"{_TRAINED}. Else choose a finer `quantization` (--quantization), or "
    "allow it by `limits` (--limit)"
)

# Why a file fails, the first that is true: test, text and remedy. Without an
# error of its own, a case is off by a number.
_FAILURES: tuple[
    tuple[
        Callable[[VerificationReport], object],
        Callable[[VerificationReport], str],
        str,
    ],
    ...,
] = (
    (
        lambda r: r.is_off and "Flex delegate" in (r.worst.error or ""),
        _off,
        "The interpreter installed here has no Flex delegate. Export with "
        "verify=False (--no-verify), and verify where there is one",
    ),
    (lambda r: r.is_off and r.worst.error, _off, ""),
    (
        lambda r: r.is_off and r.worst.where.endswith(LARGE_INTEGERS),
        _off,
        "An operator of the model computes with such integers in float32, "
        "which rounds above 16,777,216. Use export_saved_model, or subtract a "
        "constant from such inputs before they reach the model",
    ),
    (
        lambda r: r.is_off and r.worst.is_extreme and r.kind != "saved_model",
        _off,
        "The runtime computes an operator of the model differently for such "
        "inputs. Use export_saved_model, which keeps the model's own "
        "operators; or limit the operator's inputs: keras.ops.clip(x, -30, 30) "
        "if they are large, keras.ops.maximum(x, 1e-6) if it divides by x",
    ),
    (
        lambda r: r.is_off and r.different_weights,
        lambda r: f"{_off(r)}; {_other_weights(r)}",
        _TRAINED,
    ),
    (
        lambda r: r.is_off and r.eager_differences,
        lambda r: ". ".join([_off(r), *r.eager_differences]),
        "",
    ),
    (
        lambda r: r.is_off and r.largest_difference < 1e-3,
        _almost,
        _TRAINED,
    ),
    (lambda r: r.is_off, _off, _TRAINED),
    (
        lambda r: r.too_lossy and not r.on_samples,
        _lossy,
        "Outputs of generated inputs may change more than those of real ones: "
        f"give some as `samples` (--samples). {_LIMITS}",
    ),
    (lambda r: r.too_lossy, _lossy, _LIMITS),
    (
        lambda r: all(case.is_nan for case in r.cases),
        lambda r: "The model's outputs are all NaN, so nothing was verified",
        "",
    ),
    (
        lambda r: r.different_weights,
        lambda r: f"The outputs match, but {_other_weights(r)}",
        _TRAINED,
    ),
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

    @classmethod
    def published(
        cls, path: Path, report: VerificationReport | None
    ) -> "ExportedModel":
        """Returns a model that was verified elsewhere and is now at `path`."""
        if report is not None:
            report = dataclasses.replace(report, path=path)
        return cls(path, report)


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
