"""The order of steps, for every export and for `verify`.

A verification is an export that is not published. What differs between formats
is in the subclasses of `Format`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras

from keras_posenc.checks import check_names
from keras_posenc.export.check import (
    check,
    check_signatures,
    kept_cases,
    limits_of,
)
from keras_posenc.export.errors import check_verify
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.inspect import Inspection, inspect_safe
from keras_posenc.export.probes.generate import Probes, needs_samples
from keras_posenc.export.probes.reference import Reference, compute_reference
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.record import (
    make_record,
    replace_record,
    with_changed_weights,
)
from keras_posenc.export.report import ExportedModel, VerificationReport
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.versions import check_unchanged, stamp
from keras_posenc.export.worker_client import (
    ending_ahead,
    keep_spare,
    run_ahead,
    run_model,
)
from keras_posenc.progress import progress
from keras_posenc.publish import publish_file, staging_in
from keras_posenc_worker import read
from keras_posenc_worker.process import give_back

Step = Callable[[str], object]

_OWN_FILES = "InitializeTableFromTextFileV2"
_IN_FLOAT32 = (
    "compared with the model in float32, in which the file computes: the "
    "model's mixed precision rounds differently"
)


@dataclasses.dataclass(kw_only=True)
class Format:
    """The steps of an export, or of a verification, that depend on the format.

    One object is for one call of `export` or `verify`. The defaults fit a
    single file that a converter writes.
    """

    path: Path | None = None  # where a file appears; None in a verification
    given: Mapping[str, Any] | None = None  # the caller's `signatures`
    samples: Any = None
    max_length: int | None = None
    tolerance: float | None = None
    limits: Mapping[str, float] | None = None
    allow_operators: Sequence[str] = ()
    verify: bool = True
    verbose: int = True
    frozen: FrozenModel = dataclasses.field(init=False)
    # Whether an engine that runs the file measures what a quantized one loses:
    # single outputs must then only be finite.
    in_engine: bool = False
    # This and what follows is set by `resolve`.
    signatures: Sequence[Signature] = ()
    in_float32: bool = False  # whether mixed precision was set to that
    quantization: str | None = None
    fitted: Mapping[str, Sequence[Inputs]] = dataclasses.field(
        default_factory=dict
    )  # further samples by signature
    unverified: Sequence[str] = ()  # contents that cannot be compared
    left_out: Sequence[str] = ()  # what an export leaves out or changes
    # Runs cases of a file that is written, while the model computes them.
    ahead: Callable[..., object] = lambda *case: None
    # For the record: path and SHA-256 of each weight, and the cases.
    weights: Sequence[tuple[str, str]] = ()
    kept: Sequence[dict[str, Any]] = ()
    # Runs the model, once: `write` may call it while a converter works.
    compute: Callable[[], object] = lambda: None
    writing: ClassVar[str]  # progress text
    # Whether samples are tried before a conversion, which takes longer.
    computes_first: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_names("allow_operators", self.allow_operators, "operator names")

    @property
    def needs_samples(self) -> bool:
        """Whether samples are needed for more than the verification."""
        return False

    def resolve(self, model: keras.Model, found: Inspection | None) -> None:
        """Finds the signatures, and checks arguments that depend on them."""
        raise NotImplementedError

    def write(self, path: Path) -> None:
        """Writes the signatures to a path at which nothing exists."""
        raise NotImplementedError

    def complete(
        self, path: Path, reference: Reference | None, found: Inspection
    ) -> Inspection:
        """Adds files made from the reference; returns the inspection."""
        return found

    def as_served(self, reference: Reference, found: Inspection) -> Inspection:
        """Returns the file by the signatures that are compared."""
        check_signatures(reference.signatures, found)
        return found

    def run(self, reference: Reference, found: Inspection) -> dict[str, Any]:
        """Returns the file's outputs, as `run_model` does."""
        return run_model(
            found.kind,
            found.path,
            [(each.signature, each.inputs) for each in reference.probes],
            limits_of(reference, found),
            is_own=self.path is not None,
        )

    def different_weights(self, response: Mapping[str, Any]) -> list[str]:
        """Returns the model's weights that the file does not store."""
        return []

    def run_further(
        self, report: VerificationReport, reference: Reference, step: Step
    ) -> VerificationReport:
        """Runs a file that passed in a further runtime."""
        return report

    def publish(
        self,
        staged: Path,
        found: Inspection,
        reference: Reference | None,
        report: VerificationReport | None,
        step: Step,
    ) -> ExportedModel:
        """Publishes the file in one step, with its record."""
        assert self.path is not None
        record = None
        if report is not None:
            record = make_record(report, staged, self.weights, self.kept)
        publish_file(staged, self.path)
        noted = replace_record(record, self.path)
        if report is not None:
            report = dataclasses.replace(
                report.with_notes(*noted), path=self.path
            )
        return ExportedModel(self.path, report)


def export(model: keras.Model, format: Format, folder: Path) -> ExportedModel:
    """Writes, runs, compares and publishes a file, or a version's folder."""
    if not format.needs_samples:
        check_verify(format.verify, format.samples)
    report = None
    keep_spare(read.__name__)  # which starts while the model is traced
    with FrozenModel(model, format.given) as format.frozen, ending_ahead():
        format.resolve(model, None)
        probes = _probes(format) if format.verify else None
        with progress(format.verbose) as step, staging_in(folder) as staged:

            @functools.cache
            def compute() -> Reference | None:
                if probes is None:
                    return None
                return _reference(format, probes, step)

            def meanwhile() -> None:
                if compute() is not None:
                    step("Waiting for the converter")

            format.compute = functools.cache(meanwhile)
            if format.computes_first:
                compute()
            found = _write(format, staged, step)
            reference = compute()
            found = format.complete(staged, reference, found)
            if reference is not None:
                report = _report(format, reference, found, step)
                report.require_success()
                report = report.with_notes(*format.left_out)
            return format.publish(staged, found, reference, report, step)


def verify(
    model: keras.Model, format: Format, path: Path
) -> VerificationReport:
    """Compares a file with its model, as `export` does before it publishes.

    A report that passed replaces the record of the file.
    """
    before = stamp(path)
    with (
        FrozenModel(model, format.given) as format.frozen,
        progress(format.verbose) as step,
    ):
        step(f"Reading {path}")
        found = inspect_safe(path, format.allow_operators)
        format.resolve(model, found)
        reference = _reference(format, _probes(format), step)
        check_unchanged(path, before)  # or another one would be run
        report = _report(format, reference, found, step)
    report = with_changed_weights(report, path, format.weights)
    if not report.passed:
        check_unchanged(path, before)
        return report
    record = make_record(report, path, format.weights, format.kept)
    check_unchanged(path, before)
    return report.with_notes(*replace_record(record, path))


def _write(format: Format, path: Path, step: Step) -> Inspection:
    step(format.writing)
    format.write(path)
    give_back()
    # A vocabulary's file is the caller's own here.
    allowed = [*format.allow_operators, _OWN_FILES]
    found = inspect_safe(path, allowed, is_own=True)
    if format.verify and found.kind == "saved_model":
        format.ahead = functools.partial(run_ahead, path, found.size_bytes)
        format.ahead()
    return found


def _probes(format: Format) -> Probes:
    """Fits the test inputs to the signatures, some of which may have none."""
    probes = Probes.fit(
        format.signatures,
        format.samples,
        format.max_length,
        fitted=format.fitted,
        are_default=format.given is None,
        tolerance=format.tolerance,
        limits=format.limits,
        in_engine=format.in_engine,
    )
    format.signatures = probes.signatures
    format.left_out = [
        f"the file has no signature '{each.name}', which {needs_samples(each)}"
        for each in probes.left_out
    ]
    return probes


def _reference(format: Format, probes: Probes, step: Step) -> Reference:
    step("Computing reference outputs")
    found = compute_reference(probes, format.quantization, step, format.ahead)
    give_back()
    return found


def _report(
    format: Format, reference: Reference, found: Inspection, step: Step
) -> VerificationReport:
    """Runs the file, and compares its outputs and weights with the model's."""
    step("Verifying it in a fresh process")
    found = format.as_served(reference, found)
    response = format.run(reference, found)
    models = [each.model for each in format.signatures]
    format.weights = format.frozen.weights(models)
    different = format.different_weights(response)
    report = check(reference, found, response, different)
    if report.passed:
        format.kept = kept_cases(reference, response)
        report = format.run_further(report, reference, step)
    return dataclasses.replace(
        report,
        checks=[*report.checks, *[_IN_FLOAT32] * format.in_float32],
        unverified=[*report.unverified, *format.unverified],
    )
