"""`keras-posenc diff`: compares two exported files on the cases of one."""

import argparse
import dataclasses
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, without_keras
from keras_posenc_cli.options import Commands, add_command, add_options
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "diff",
        run,
        summary="compare two exported files of one model",
        description="Runs two exported files, of any two formats, on the cases "
        "that are kept with the first, and prints how far the outputs of the "
        "second are from those of the first. Needs no Keras.",
        usage="FIRST SECOND [option ...]",
        example="keras-posenc diff judge.tflite judge-int8.tflite",
    )
    add_options(parser, "exported", metavar="FIRST", help="a file with cases")
    parser.add_argument(
        "second", type=arguments.path, metavar="SECOND", help="another file"
    )
    add_options(parser, "--allow-op", "--json")


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
