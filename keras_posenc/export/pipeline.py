"""From a model to one file: converted, verified, published."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_posenc.export.check import verify_expectations
from keras_posenc.export.inspect import inspect_safe
from keras_posenc.export.probes.cases import Expectations, Questions
from keras_posenc.export.probes.reference import expect
from keras_posenc.export.publish import as_path, publish_file, staging_beside
from keras_posenc.export.record import make_record, record_path, try_to_record
from keras_posenc.export.report import Artifact
from keras_posenc.progress import progress
from keras_posenc_worker.memory import give_back


def check_file(path: str | Path, suffix: str) -> Path:
    """Returns the path; raises `ValueError` where it has another ending."""
    path = as_path("path", path)
    if path.suffix != suffix:
        raise ValueError(
            f"`path` must end in '{suffix}'. Received: path='{path}'"
        )
    if os.path.isdir(path):  # unlike Path's, for any name
        raise ValueError(f"`path` must be a file, and '{path}' is a folder")
    return path


def export_file(
    path: Path,
    questions: Questions | None,
    write: Callable[[Path], object],
    also: Callable[[Path, Expectations], tuple[int, list[str]]] | None = None,
    *,
    format_name: str,
    in_float32: bool,
    quantization: str | None,
    allow_operators: Sequence[str],
    verbose: int,
) -> Artifact:
    """Writes a file that appears in one step, once it is verified.

    Args:
        path: Where it appears.
        questions: What to verify it with, or None for not at all.
        write: Converts the model to a file at a path. It is called once the
            model has answered, since samples may turn out to be none of its
            inputs.
        also: Asks a further runtime, which raises where it is answered
            wrongly, and returns how often it was asked and what to note.
        format_name: Of the file.
        in_float32: Whether the model stands in float32 instead of its own
            mixed precision.
        quantization: The file's mode of quantization, or None.
        allow_operators: See `export_saved_model`.
        verbose: See `export_saved_model`.
    """
    report = expected = record = None
    with (
        progress(verbose) as step,
        staging_beside(path.parent) as staged,
    ):
        if questions is not None:
            step("Computing reference outputs")
            expected = expect(questions, in_float32, quantization)
            give_back()
        step(f"Converting to {format_name}")
        write(staged)
        give_back()
        found = inspect_safe(staged, allow_operators)
        if expected is not None:
            step("Verifying it in a fresh process")
            report = verify_expectations(
                expected, found, allow_operators=allow_operators
            )
            report.require_success()
            if also is not None:
                step("Asking MediaPipe")
                count, noted = also(staged, expected)
                report = dataclasses.replace(
                    report, mediapipe=count, notes=[*report.notes, *noted]
                )
            record = make_record(report, staged)
        publish_file(staged, path)
    if report is not None and record is not None:
        report = try_to_record(report, record, path)
    else:  # what is left of an earlier file is not of this one
        record_path(path).unlink(missing_ok=True)
    return Artifact.published(path, report)
