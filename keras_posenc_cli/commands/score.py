"""`keras-posenc score`: runs an exported file on files of rows."""

import argparse
import json
from pathlib import Path

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, is_checkpoint, without_keras
from keras_posenc_cli.options import REQUIRED_PATH, Commands, add_command
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK, UsageError


def add(commands: Commands) -> None:
    add_command(
        commands,
        "score",
        run,
        "exported",
        (
            "--in PATH",
            "files or folders",
            {"dest": "inputs", "nargs": "+", "required": True},
        ),
        ("--out FOLDER", "where the outputs are written", REQUIRED_PATH),
        ("--column NAME", "column of the input (default: the input's name)"),
        (
            "--keep A,B",
            "columns to write with the outputs",
            {"type": lambda text: text.split(","), "default": []},
        ),
        "--signature",
        (
            "--workers N",
            "how many processes score (default: %(default)s)",
            {"type": arguments.length, "default": 1},
        ),
        (
            "--max-bytes N",
            "longest row to run (default: %(default)s)",
            {"type": arguments.length, "default": 20_000},
        ),
        (
            "--allow-unverified",
            "run a file without a record of its verification",
        ),
        "--allow-op",
        "--json",
        summary="run an exported file on files of rows",
        description="Runs a verified exported file on each row of Parquet, CSV "
        "or JSON lines files. Writes a Parquet file for each, and its failed "
        "rows to _bad. Continues an interrupted run.",
        example="score order.tflite --in data --column ids --out scored",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    if is_checkpoint(options.exported):
        raise UsageError(
            f"'{options.exported}' is a checkpoint. Export it first: "
            f"keras-posenc export saved-model {options.exported} --out FOLDER"
        )
    out = options.out
    if out.is_file():
        raise UsageError(f"--out must be a folder, and '{out}' is a file")
    if any(Path(each).resolve() == out.resolve() for each in options.inputs):
        raise UsageError("--out must be another folder than --in")
    without_keras()
    import dataclasses

    from keras_posenc.scoring.files import score_files
    from keras_posenc.scoring.scorer import Scorer

    scorer = Scorer(
        options.exported,
        column=options.column,
        signature=options.signature,
        keep=options.keep,
        max_bytes=options.max_bytes,
        allow_operators=options.allow_operators,
        allow_unverified=options.allow_unverified,
    )
    report = score_files(
        scorer, options.inputs, out=options.out, workers=options.workers
    )
    if options.json:
        found = {**dataclasses.asdict(report), "out": str(report.out)}
        print(json.dumps(found, indent=2))
    else:
        print(report)
    return EXIT_OK if report.passed else EXIT_FAILED
