"""The one order of steps, for every export and for `verify`.

A verification is an export that is not published. What a format has of its own
is an object behind `Format`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import keras

from keras_posenc.export.check import check, check_signatures
from keras_posenc.export.errors import check_verify
from keras_posenc.export.frozen import FrozenModel
from keras_posenc.export.inspect import (
    Inspection,
    check_operators,
    inspect_safe,
)
from keras_posenc.export.operators import check_known
from keras_posenc.export.probes.generate import Probe, Probes
from keras_posenc.export.probes.reference import Reference, compute_reference
from keras_posenc.export.probes.samples import Inputs
from keras_posenc.export.publish import (
    check_unchanged,
    publish_file,
    staging_beside,
    stamp,
)
from keras_posenc.export.record import make_record, record_path, try_to_record
from keras_posenc.export.report import Artifact, VerificationReport
from keras_posenc.export.signatures.resolve import check_model
from keras_posenc.export.signatures.signature import Signature
from keras_posenc.export.worker_client import ask, limits_of
from keras_posenc.progress import progress
from keras_posenc_worker.memory import give_back

Step = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Request:
    """What callers say of an export or a verification, in any format.

    The attributes are the arguments of `verify` and of the exports.
    """

    signatures: Mapping[str, Any] | None = None
    samples: Any = None
    max_length: int | None = None
    tolerance: float | None = None
    agreement: float | None = None
    allow_operators: Sequence[str] = ()
    other_writer: bool = False
    verify: bool = True
    verbose: int = True


class Format(Protocol):
    """A format's own part of an export, and of a verification.

    What is defined here is right for a single file that a converter writes.
    `resolve` is called first, with the model frozen, and sets the attributes
    from `signatures` on.

    Attributes:
        kind: As in `Inspection`.
        writing: What progress says while the file is written.
        path: Where an exported file appears; None in a verification.
        is_conversion: Whether a converter writes the file. That takes long, so
            the model is run before, and `verify` converts it again to compare
            the contents. Else the file is written first, and loaded while the
            model is run.
        signatures: Those of the file, or those of them that are verified.
        in_float32: Whether a model of mixed precision was set to float32.
        quantization: The file's mode of quantization, or None.
        samples: The caller's samples, as inputs of the signatures.
        fitted: Further samples, by the name of their signature.
        extra: Probes whose outputs are known otherwise.
        unverified: What of the file cannot be compared, in words.
    """

    kind: str
    writing: str
    path: Path | None = None
    is_conversion: bool = True
    signatures: Sequence[Signature] = ()
    in_float32: bool = False
    quantization: str | None = None
    samples: Any = None
    fitted: Mapping[str, Sequence[Inputs]] = {}
    extra: Iterable[Probe] = ()
    unverified: Sequence[str] = ()

    def resolve(
        self,
        model: keras.Model,
        request: Request,
        inspection: Inspection | None = None,
    ) -> None:
        """Finds the signatures, and checks what depends on them.

        Args:
            model: The model.
            request: What the caller says.
            inspection: The file to verify; None in an export.

        Raises:
            ValueError: Arguments that do not fit the model.
            ExportError: The format cannot hold the model.
        """

    def write(self, path: Path) -> None:
        """Writes the signatures to a path at which nothing exists."""

    def runtime(self) -> contextlib.AbstractContextManager[object]:
        """Starts what runs the file, while the model is run."""
        return contextlib.nullcontext()

    def load(self, path: Path, inspection: Inspection | None = None) -> None:
        """Has the runtime load the file, while the model is run.

        Args:
            path: The file.
            inspection: What it is; None if it was written just now.
        """
        return None

    def complete(
        self, path: Path, reference: Reference | None, inspection: Inspection
    ) -> Inspection:
        """Adds what the reference outputs go into; returns the inspection."""
        return inspection

    def run(
        self, reference: Reference, inspection: Inspection
    ) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Runs the file in the worker; returns its response, and arrays."""
        limits = limits_of(reference, inspection)
        return ask(
            self.kind, inspection.path, reference.probes, limits, runtime=None
        )

    def compare_contents(
        self,
        reference: Reference,
        inspection: Inspection,
        response: Mapping[str, Any],
    ) -> tuple[list[str], list[str], list[str]]:
        """Compares weights and graph with what the model becomes.

        Returns:
            `altered`, `rewritten` and `folded` of `VerificationReport`.
        """
        ...

    def run_further(
        self, path: Path, reference: Reference, step: Step
    ) -> tuple[int | None, list[str]]:
        """Runs the file in a further runtime.

        Returns:
            `mediapipe` of `VerificationReport`, and notes.

        Raises:
            ExportVerificationError: Its outputs are not the model's there.
        """
        return None, []

    def publish(
        self,
        staged: Path,
        inspection: Inspection,
        reference: Reference | None,
        report: VerificationReport | None,
        step: Step,
    ) -> Artifact:
        """Makes the verified file appear in one step, with its record."""
        assert self.path is not None
        record = None if report is None else make_record(report, staged)
        publish_file(staged, self.path)
        if report is None:  # what an earlier file left is not this one's
            record_path(self.path).unlink(missing_ok=True)
        else:
            report = try_to_record(report, record, self.path)
        return Artifact.published(self.path, report)


def export(
    model: keras.Model, format: Format, folder: Path, request: Request
) -> Artifact:
    """Exports a model: writes, runs, compares and publishes a file.

    Args:
        model: The model.
        format: What of the format.
        folder: Where the file, or the folder of a version, is to appear.
        request: What the caller says.

    Raises:
        ValueError: Arguments that do not fit the model.
        ExportError: The format cannot hold the model, or it cannot be written.
        ExportVerificationError: The file does not give the model's outputs.
    """
    check_verify(request.verify, request.samples)
    check_operators(request.allow_operators)
    check_known(request.allow_operators)
    check_model(model)
    reference = report = writing = None
    with FrozenModel(model, request.signatures):
        format.resolve(model, request)
        probes = _probes(format, request) if request.verify else None
        with (
            progress(request.verbose) as step,
            staging_beside(folder) as staged,
            format.runtime() if probes else contextlib.nullcontext(),
            ThreadPoolExecutor(1) as pool,
        ):

            def write() -> Future[Inspection]:
                step(format.writing)
                format.write(staged)
                give_back()
                return pool.submit(
                    inspect_safe, staged, request.allow_operators
                )

            if not format.is_conversion:
                writing = write()
            if probes is not None:
                if writing is not None:
                    format.load(staged)
                reference = _reference(format, probes, step)
                give_back()
            # Late, where samples that are no inputs of the model are to be
            # reported before a conversion.
            writing = writing or write()
            inspection = format.complete(staged, reference, writing.result())
            if reference is not None:
                report = _report(format, reference, inspection, request, step)
            return format.publish(staged, inspection, reference, report, step)


def verify(
    model: keras.Model, format: Format, path: Path, request: Request
) -> VerificationReport:
    """Compares a file with its model, as `export` compares what it wrote.

    Args:
        model: The model.
        format: What is the format's own.
        path: The file, or the folder of a version.
        request: What the caller says.

    Raises:
        ValueError: Arguments that do not fit the model or the file.
        ExportVerificationError: The file cannot be run, or was changed
            meanwhile; or the model's own outputs change by being run.
    """
    check_operators(request.allow_operators)
    check_model(model)
    with (
        FrozenModel(model, request.signatures),
        progress(request.verbose) as step,
    ):
        step(f"Reading {path}")
        before = stamp(path)
        inspection = inspect_safe(path, request.allow_operators)
        format.resolve(model, request, inspection)
        probes = _probes(format, request)
        with format.runtime():
            format.load(path, inspection)
            reference = _reference(format, probes, step)
            check_unchanged(path, before)  # or another one would be run
            report = _report(format, reference, inspection, request, step)
        record = make_record(report, path) if report.passed else None
        check_unchanged(path, before)
        return try_to_record(report, record, path)


def _probes(format: Format, request: Request) -> Probes:
    """Fits the test inputs to the signatures, some of which may have none."""
    probes = Probes.fit(
        format.signatures,
        format.samples,
        request.max_length,
        request.tolerance,
        request.agreement,
        fitted=format.fitted,
        are_default=request.signatures is None,
        extra=format.extra,
    )
    format.signatures = probes.signatures
    return probes


def _reference(format: Format, probes: Probes, step: Step) -> Reference:
    step("Computing reference outputs")
    return compute_reference(probes, format.in_float32, format.quantization)


def _report(
    format: Format,
    reference: Reference,
    inspection: Inspection,
    request: Request,
    step: Step,
) -> VerificationReport:
    """Runs the file, and compares its outputs and contents with the model's.

    Raises:
        ExportVerificationError: It cannot be run; or, in an export, it does not
            pass.
    """
    step("Verifying it in a fresh process")
    check_signatures(reference.signatures, inspection)
    response, outputs = format.run(reference, inspection)
    report = check(
        reference,
        inspection,
        response,
        outputs,
        request.allow_operators,
        request.other_writer,
    )
    is_own = format.path is not None
    if not format.is_conversion or (report.passed and not is_own):
        if format.is_conversion:
            step("Comparing it with a conversion of the model")
        altered, rewritten, folded = format.compare_contents(
            reference, inspection, response
        )
        report = dataclasses.replace(
            report, altered=altered, rewritten=rewritten, folded=folded
        )
    if is_own:
        report.require_success()
    if report.passed:
        count, notes = format.run_further(inspection.path, reference, step)
        report = dataclasses.replace(
            report, mediapipe=count, notes=[*report.notes, *notes]
        )
    return dataclasses.replace(
        report, unverified=[*report.unverified, *format.unverified]
    )
