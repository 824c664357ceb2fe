"""The record that a passed verification leaves next to an exported model.

It holds a digest of each file, the verified signatures, and the cases: inputs
and the model's outputs. `replay` runs these without the Keras model, and
`Scorer` reads the digests before it runs the file. A verification replaces an
earlier record: anyone could have written that.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_posenc.export.errors import ExportError, ExportVerificationError
from keras_posenc.export.inspect import files
from keras_posenc.export.processor import processor
from keras_posenc.export.regular_files import open_regular, read_regular
from keras_posenc.publish import publish_file, staging_in, writing_to
from keras_posenc_worker import cases

if TYPE_CHECKING:  # imports Keras, which readers of a record do not need
    from keras_posenc.export.report import VerificationReport

# Outputs do not depend on the card and on the parameters of batching.
_NOT_RUN = {"MODEL_CARD.md", "batching_params.pbtxt"}


def record_path(exported: Path) -> Path:
    """Returns the path of a record: inside a folder, or next to a file."""
    if exported.is_dir():
        return exported / "assets.extra" / "cases.npz"
    path = exported.resolve()  # the same record through any link
    return path.with_name(f"{path.name}.cases.npz")


def digests(exported: Path) -> dict[str, str]:
    """Returns the SHA-256 of each file that outputs may depend on.

    Returns:
        Hexadecimal digests by path within the folder; of a single file, by
        `""`, so that it may be renamed.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is no regular one, or does not belong to a
            SavedModel.
    """
    paths = {"": exported}
    if exported.is_dir():
        left_out = {record_path(exported), *map(exported.joinpath, _NOT_RUN)}
        found = {Path(entry.path) for entry in files(exported)} - left_out
        paths = {path.relative_to(exported).as_posix(): path for path in found}
    sums = {}
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
    """Returns the record of a report, for the files as they are now.

    It names the signatures that this verification compared.

    Args:
        report: The report.
        exported: The exported file, or version folder.
        weights: Path and SHA-256 of each weight of the model.
        kept: The cases, as `cases.make_case` makes them; of these a few MB.
    """
    import keras
    import tensorflow as tf

    from keras_posenc.export.report import of_likelihoods

    # A signature is not verified if its labels were not compared.
    partly = {each.partition("/")[0] for each in report.unverified}
    names = {case.signature for case in report.cases} - partly
    signatures = {}
    for name in sorted(names):
        own = [case for case in report.required_cases if case.signature == name]
        signatures[name] = {
            "largest_difference": max(
                (float(case.largest_difference) for case in own), default=None
            ),
            "tolerance": float(report.tolerance),
        }
    some, left_out = cases.within_budget(kept)
    record = {
        "kind": report.kind,
        "files": digests(exported),
        "signatures": signatures,
        "weights": sorted({sum for _, sum in weights}),
        "quantization": report.quantization,
        "processor": processor(),
        "versions": {"keras": keras.__version__, "tensorflow": tf.__version__},
        "likelihoods": None
        if report.likelihoods is None
        else of_likelihoods(report),
        "left_out": left_out,
        "cases": some,
    }
    return cases.pack(record)


def add_record(record: bytes, staged: Path) -> None:
    """Writes a record into a folder that is not published yet.

    Raises:
        ExportError: It cannot be written.
    """
    path = record_path(staged)
    with writing_to(path.parent):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(record)


def write_record(record: bytes, exported: Path) -> None:
    """Writes a record for a published model, in one step.

    Raises:
        ExportError: It cannot be written.
    """
    path = record_path(exported)
    with staging_in(path.parent) as staged:
        with writing_to(path.parent):
            staged.write_bytes(record)
        publish_file(staged, path)


def try_to_record(
    report: "VerificationReport", record: bytes | None, exported: Path
) -> "VerificationReport":
    """Writes a record, or removes an earlier one if there is none.

    Returns:
        The report, with a note if a record was removed or cannot be written.
    """
    note = None
    if record is None:
        note = remove_record(exported)
    else:
        try:
            write_record(record, exported)
        except ExportError as error:
            note = f"this verification could not be recorded: {error}"
    if note is None:
        return report
    return dataclasses.replace(report, notes=[*report.notes, note])


def remove_record(exported: Path) -> str | None:
    """Removes a record; returns a note on it, or None if there was none."""
    path = record_path(exported)
    if not path.exists():
        return None
    try:
        with writing_to(exported.parent):
            path.unlink(missing_ok=True)
    except ExportError as error:
        return f"an earlier record could not be removed: {error}"
    return f"removed the record of an earlier verification: {path}"


def changes(exported: Path, found: Mapping[str, str]) -> list[str] | None:
    """Returns which files differ from those that were verified.

    Args:
        exported: The exported file, or version folder.
        found: Its `digests`.

    Returns:
        Their names, sorted; or None if there is no record.

    Raises:
        ValueError: The record cannot be used.
    """
    record = read_record(exported)
    return None if record is None else changed_files(record, found)


def compared_with_record(
    report: "VerificationReport",
    exported: Path,
    weights: Sequence[tuple[str, str]],
) -> "VerificationReport":
    """Adds to a report which weights have changed since the export.

    Without a record of the file as it is, it adds a note on that.

    Args:
        report: The report.
        exported: The exported file, or version folder.
        weights: Path and SHA-256 of each weight that may be in the file.
    """
    try:
        record = read_record(exported)
    except ValueError:
        record = None
    if record is None or changed_files(record, digests(exported)):
        note = (
            "no record of an export or a verification fits the file: weights "
            "that no test input reaches are not compared"
        )
        return dataclasses.replace(report, notes=[*report.notes, note])
    changed = [path for path, sum in weights if sum not in record["weights"]]
    both = dict.fromkeys([*report.different_weights, *changed])
    return dataclasses.replace(report, different_weights=[*both])


def recorded_likelihoods(exported: Path) -> str | None:
    """Returns what a verification measured of a generator, as text, or None.

    Args:
        exported: The exported file, or version folder, with a usable record.
    """
    record = read_record(exported) or {}
    text = record.get("likelihoods")
    return None if text is None else _shown(text)


def check_record(
    exported: Path, signature: str, found: Mapping[str, str]
) -> None:
    """Checks that an exported model is still the one that was verified.

    Args:
        exported: The exported file, or version folder.
        signature: The signature that is to be run.
        found: Its `digests`.

    Raises:
        ExportVerificationError: There is no record, or it is of other files or
            other signatures.
    """
    remedy = (
        "Verify it with its model: keras-posenc verify "
        f"{exported} MODEL.keras. Or run it unverified: allow_unverified=True "
        "(--allow-unverified)"
    )
    try:
        record = read_record(exported)
    except ValueError as error:
        raise ExportVerificationError(f"{error}. {remedy}") from error
    if record is None:
        raise ExportVerificationError(
            f"'{exported}' has no record of a verification. {remedy}"
        )
    if changed := changed_files(record, found):
        what = ", ".join(filter(None, changed[:3]))
        raise ExportVerificationError(
            f"'{exported}' is not the file that was verified"
            + f": {what} changed since" * bool(what)
            + f". {remedy}"
        )
    if signature not in record["signatures"]:
        verified = ", ".join(map(_shown, record["signatures"])) or "none"
        raise ExportVerificationError(
            f"Signature '{signature}' of '{exported}' was not verified; "
            f"verified: {verified}. Verify all signatures that you use at once "
            "(`signatures`, --signature), with the export's labels, if any "
            f"(`labels`, --labels). {remedy}"
        )


def changed_files(
    record: Mapping[str, Any], found: Mapping[str, str]
) -> list[str]:
    """Returns which files differ from those of a record; see `changes`."""
    known = record["files"]
    return sorted(
        _shown(name)
        for name in {*known, *found}
        if known.get(name) != found.get(name)
    )


def _shown(name: str) -> str:
    """Returns a name from a file without control characters."""
    return name if name.isprintable() else ascii(name)


def read_record(exported: Path) -> dict[str, Any] | None:
    """Returns the record of an exported model, or None if there is none.

    Args:
        exported: The exported file, or version folder.

    Raises:
        ValueError: The file is no record.
    """
    path = record_path(exported)
    try:
        record = cases.unpack(read_regular(path, cases.MOST_BYTES))
        cases.check(record)
    except FileNotFoundError:
        return None
    except (MemoryError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"the record '{path}' cannot be used: {reason}"
        ) from error
    return record
