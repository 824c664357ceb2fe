"""`keras-posenc diff`: compares two exported files on the cases of one."""

import argparse
import dataclasses
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, without_keras
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK


def add(commands: Commands) -> None:
    add_command(
        commands,
        "diff",
        run,
        ("exported FIRST", "a file with cases", arguments.path),
        ("second SECOND", "another file", arguments.path),
        "--allow-op",
        "--json",
        summary="compare two exported files of one model",
        description="Runs two exported files, of any two formats, on the cases "
        "that are kept with the first, and prints how far the outputs of the "
        "second are from those of the first. Needs no Keras.",
        example="diff order.tflite order-int8.tflite",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    check_exists(options.second)
    without_keras()
    from keras_posenc.export import units
    from keras_posenc.export.replay import diff

    found, notes = diff(
        options.exported,
        options.second,
        allow_operators=options.allow_operators,
    )
    if options.json:
        outputs = units.jsonable([dataclasses.asdict(each) for each in found])
        print(json.dumps({"outputs": outputs, "notes": notes}, indent=2))
    else:
        print(*found, *notes, sep="\n")
    return EXIT_OK if found else EXIT_FAILED  # nothing was compared
