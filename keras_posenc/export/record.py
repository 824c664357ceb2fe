"""The record that a passed verification leaves next to an exported model.

It holds a digest of each file, the verified signatures, and the cases. One that
passes replaces an earlier one, which anyone could have written.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.inspect import files
from keras_posenc.export.regular_files import open_regular, read_regular
from keras_posenc.export.versions import unlike
from keras_posenc.progress import printable
from keras_posenc.publish import publish_file, staging_in, writing_to
from keras_posenc_worker import cases

if TYPE_CHECKING:  # imports Keras, which readers of a record do not need
    from keras_posenc.export.report import VerificationReport

_IN_FOLDER = "assets.extra/cases.npz"
# Outputs do not depend on these.
_NOT_RUN = (_IN_FOLDER, "MODEL_CARD.md", "batching_params.pbtxt")


def record_path(exported: Path) -> Path:
    """Returns the path of a record: inside a folder, or next to a file."""
    if exported.is_dir():
        return exported / _IN_FOLDER
    path = exported.resolve()  # the same record through any link
    return path.with_name(f"{path.name}.cases.npz")


def digests(exported: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file that outputs may depend on.

    By the path within a folder; of a single file by `""`: it may be renamed.
    """
    paths, sums = {"": exported}, {}
    if exported.is_dir():
        found = [Path(entry.path) for entry in files(exported)]
        paths = {path.relative_to(exported).as_posix(): path for path in found}
        for name in _NOT_RUN:
            paths.pop(name, None)
    for name in sorted(paths):
        with open_regular(paths[name]) as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def make_record(
    report: "VerificationReport",
    exported: Path,
    weights: Sequence[tuple[str, str]],
    kept: Sequence[dict[str, Any]],
) -> bytes:
    """Returns the record of a report, for the files as they are now."""
    import keras
    import tensorflow as tf

    # A signature is not verified if its labels were not compared.
    partly = {each.partition("/")[0] for each in report.unverified}
    names = {case.signature for case in report.cases} - partly
    record = {
        "kind": report.kind,
        "files": digests(exported),
        "signatures": sorted(names),
        "weights": sorted({sum for _, sum in weights}),
        "quantization": report.quantization,
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
        "cases": cases.within_budget(kept),
    }
    return cases.pack(record)


def replace_record(record: bytes | None, exported: Path) -> list[str]:
    """Writes the record of a published model in one step, or removes it."""
    try:
        if record is None:
            with writing_to(exported.parent):
                record_path(exported).unlink(missing_ok=True)
        else:
            write_record(record, exported)
    except ExportError as error:
        return [f"this verification could not be recorded: {error}"]
    return []


def write_record(record: bytes, exported: Path) -> None:
    """Writes the record of a model in one step."""
    path = record_path(exported)
    with staging_in(path.parent) as staged:
        with writing_to(path.parent):
            staged.write_bytes(record)
        publish_file(staged, path)


def with_changed_weights(
    report: "VerificationReport",
    exported: Path,
    weights: Sequence[tuple[str, str]],
) -> "VerificationReport":
    """Adds which weights have changed since the export, or that none knows."""
    try:
        record = verified_record(exported, digests(exported))
    except (ExportVerificationError, ValueError):
        return report.with_notes(
            "no record of an export or a verification fits the file: weights "
            "that no test input reaches are not compared"
        )
    changed = [path for path, sum in weights if sum not in record["weights"]]
    both = dict.fromkeys([*report.different_weights, *changed])
    return dataclasses.replace(report, different_weights=[*both])


def verified_record(exported: Path, found: Mapping[str, str]) -> dict[str, Any]:
    """Returns the record of a model whose files are still those verified."""
    remedy = "Verify it with its model: `kp.verify_export(path, model)`"
    record = read_record(exported)
    if record is None:
        raise ValueError(
            f"'{exported}' has no record of a verification, "
            f"'{record_path(exported)}'. {remedy}"
        )
    if changed := changed_files(record, found):
        what = ", ".join(filter(None, changed[:3]))
        raise ExportVerificationError(
            f"'{exported}' is not the file that was verified"
            + f": {what} changed since" * bool(what)
            + f". {remedy}"
        )
    return record


def check_record(
    exported: Path, signature: str, found: Mapping[str, str]
) -> None:
    """Checks that an exported model is still the one that was verified."""
    try:
        record = verified_record(exported, found)
        if signature not in record["signatures"]:
            verified = ", ".join(map(printable, record["signatures"])) or "none"
            raise ValueError(
                f"Signature '{signature}' of '{exported}' was not verified; "
                f"verified: {verified}. Verify all signatures that you use at "
                "once, with the export's labels, if any"
            )
    except (ExportVerificationError, ValueError) as error:
        raise ExportVerificationError(
            f"{error}. `allow_unverified=True` runs it unverified"
        ) from error


def changed_files(
    record: Mapping[str, Any], found: Mapping[str, str]
) -> list[str]:
    """Returns the names of files that differ from those of a record."""
    return [printable(name) for name in unlike(record["files"], found)]


def read_record(exported: Path) -> dict[str, Any] | None:
    """Returns the record of an exported model, or None if there is none."""
    path = record_path(exported)
    try:
        return cases.unpack(read_regular(path, cases.MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"the record '{path}' cannot be used: {reason}. Verify the file "
            "with its model, `kp.verify_export(path, model)`"
        ) from error
