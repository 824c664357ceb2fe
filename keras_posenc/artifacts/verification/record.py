"""What a verification that passed leaves with an artifact.

Whoever runs it later, without its model, sees by the digest of each file that
it is the one that gave the model's answers.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_posenc.artifacts.ground.errors import (
    ExportError,
    ExportVerificationError,
)
from keras_posenc.artifacts.ground.staging import (
    publish_file,
    staging_beside,
    writing_to,
)
from keras_posenc.artifacts.inspection.folders import files

if TYPE_CHECKING:  # which needs Keras, and who reads a record does not
    from keras_posenc.artifacts.verification.report import VerificationReport

# What no answer depends on: the page, and how a server puts requests together.
_NOT_RUN = {"MODEL_CARD.md", "batching_params.pbtxt"}


def record_path(artifact: Path) -> Path:
    """Where the record of an artifact stands: inside of a folder, or beside."""
    if artifact.is_dir():
        return artifact / "assets.extra" / "verification.json"
    return artifact.with_name(f"{artifact.name}.verified.json")


def digests(artifact: Path) -> dict[str, str]:
    """The SHA-256 of each file that an artifact's answers may depend on.

    Returns:
        Hexadecimal digests by path within the folder; of a file, by `""`, so
        that it may be renamed.
    """
    paths = {"": artifact}
    if artifact.is_dir():
        left_out = {record_path(artifact), *map(artifact.joinpath, _NOT_RUN)}
        found = {Path(entry.path) for entry in files(artifact)} - left_out
        paths = {path.relative_to(artifact).as_posix(): path for path in found}
    sums = {}
    for name in sorted(paths):
        with paths[name].open("rb") as file:
            sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def make_record(report: "VerificationReport", artifact: Path) -> str:
    """The record of a report, for the files that are there now."""
    import keras
    import tensorflow as tf

    found = digests(artifact)
    # Whose labels were not compared was not verified.
    partly = {each.partition("/")[0] for each in report.unverified}
    signatures = {case.signature for case in report.cases} - partly
    earlier = _read(record_path(artifact))
    if earlier is not None and earlier["files"] == found:
        signatures |= {*earlier["signatures"]}
    record = {
        "files": found,
        "signatures": sorted(signatures),
        "worst_difference": float(report.worst_difference),
        "tolerance": float(report.tolerance),
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
    }
    return json.dumps(record, indent=2) + "\n"


def write_record(record: str, artifact: Path) -> None:
    """Puts a record with its artifact, in one step.

    Raises:
        ExportError: It cannot be written.
    """
    path = record_path(artifact)
    with staging_beside(path.parent) as staged:
        with writing_to(path.parent):
            staged.write_text(record, encoding="utf-8")
        publish_file(staged, path)


def try_to_record(
    report: "VerificationReport", record: str, artifact: Path
) -> "VerificationReport":
    """`write_record`; the report, which says so if that cannot be."""
    try:
        write_record(record, artifact)
    except ExportError as error:
        note = f"no record of this is left: {error}"
        return dataclasses.replace(report, notes=[*report.notes, note])
    return report


def check_record(
    artifact: Path, signature: str, found: Mapping[str, str]
) -> dict[str, Any]:
    """The record of an artifact, which is still the one that was verified.

    Args:
        artifact: Its file, or its version folder.
        signature: The one that is to be asked.
        found: Its `digests`.

    Raises:
        ExportVerificationError: There is no record, or it is of other files,
            or of other signatures.
    """
    path = record_path(artifact)
    remedy = (
        "Verify it beside its model: keras-posenc verify MODEL.keras "
        f"{artifact}. Or let it answer unverified: allow_unverified=True "
        "(--allow-unverified)"
    )
    record = _read(path)
    if record is None:
        raise ExportVerificationError(
            f"'{artifact}' has no record that it gives its model's answers. "
            f"{remedy}"
        )
    known = record["files"]
    changed = sorted(
        name for name in {*known, *found} if known.get(name) != found.get(name)
    )
    if changed:
        what = ", ".join(filter(None, changed[:3]))
        raise ExportVerificationError(
            f"'{artifact}' is not what was verified"
            + f": {what} changed since" * bool(what)
            + f". {remedy}"
        )
    if signature not in record["signatures"]:
        verified = ", ".join(record["signatures"]) or "none"
        raise ExportVerificationError(
            f"Signature '{signature}' of '{artifact}' was not verified; "
            f"verified: {verified}. {remedy}"
        )
    return record


def _read(path: Path) -> dict[str, Any] | None:
    """A record, or None where there is none that can be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    wanted = {"files": dict, "signatures": list, "tolerance": float}
    is_record = isinstance(record, dict) and all(
        isinstance(record.get(name), kind) for name, kind in wanted.items()
    )
    return record if is_record else None
