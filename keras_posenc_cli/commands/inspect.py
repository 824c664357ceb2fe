"""`keras-posenc inspect`: what an exported file contains."""

import argparse
import dataclasses
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, is_checkpoint, without_keras
from keras_posenc_cli.options import (
    Commands,
    add_command,
    details_or_json,
    option_names,
)
from keras_posenc_cli.process import EXIT_OK, UsageError, in_options


def add(commands: Commands) -> None:
    add_command(
        commands,
        "inspect",
        run,
        (
            "exported PATH",
            ".tflite, .litertlm or .onnx file, SavedModel folder, or folder of "
            "its versions",
            arguments.path,
        ),
        details_or_json("all of these in tables"),
        summary="show what a file contains, and whether it is safe to run",
        description="Shows the signatures, operators and sizes of a SavedModel "
        "folder, LiteRT or ONNX file or LiteRT-LM package (.litertlm), without "
        "running it.",
        example="inspect order.tflite --json",
    )


def run(options: argparse.Namespace) -> int:
    path = options.exported
    check_exists(path)
    if path.suffix == ".keras" or is_checkpoint(path):
        raise UsageError(
            f"'{path}' is a model: keras-posenc inspect takes exported files"
        )
    without_keras()
    from keras_posenc.export.errors import ExportVerificationError
    from keras_posenc.export.inspect import inspect_export, locate
    from keras_posenc.export.record import changed_files, digests, read_record
    from keras_posenc.progress import printable

    locate(path)  # else the argument is wrong, not the file
    try:
        inspection = inspect_export(path)
    except ValueError as error:
        raise ExportVerificationError(str(error)) from error
    changed, unusable, bare = None, None, list[str]()
    try:
        record = read_record(inspection.path)
        if record is not None:
            changed = changed_files(record, digests(inspection.path))
            if inspection.kind != "litertlm":  # verified in its engine
                verified = record["signatures"]
                bare = sorted({*inspection.signatures}.difference(verified))
    except ValueError as error:
        unusable = in_options(str(error), option_names(options.parser))
    if options.json:
        result = {
            **dataclasses.asdict(inspection),
            "changed": changed,
            "unverified": None if changed is None else bare,
        }
        print(json.dumps(result, default=str, indent=2))
    else:
        print(inspection.details() if options.details else inspection)
        print(printable(unusable or _since_verified(changed, bare)))
    return EXIT_OK


def _since_verified(changed: list[str] | None, bare: list[str]) -> str:
    if changed is None:
        return "there is no record that it was verified"
    if not changed:
        but = f"; not verified: {', '.join(bare)}" * bool(bare)
        return f"the files are those that were verified{but}"
    names = ", ".join(name or "the file" for name in changed[:3])
    return f"changed since it was verified: {names}"
