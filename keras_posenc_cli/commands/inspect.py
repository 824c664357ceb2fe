"""`keras-posenc inspect`: what an artifact or a .keras model holds."""

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import load_model
from keras_posenc_cli.process import EXIT_OK

if TYPE_CHECKING:
    from keras_posenc_cli.arguments import Commands


def add(commands: "Commands") -> None:
    parser = arguments.add_command(
        commands,
        "inspect",
        run,
        summary="show inputs, outputs, operators and sizes of an artifact",
        description="Shows the signatures, operators and sizes of a SavedModel "
        "folder, LiteRT or ONNX file, or the layers of a .keras model.",
        usage="ARTIFACT [option ...]",
        example="keras-posenc inspect judge.tflite --json",
    )
    parser.add_argument(
        "artifact",
        type=arguments.path,
        metavar="ARTIFACT",
        help=".tflite, .onnx or .keras file, SavedModel folder, or folder of "
        "its versions",
    )
    arguments.add_import(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    if options.artifact.suffix == ".keras":
        model = load_model(options.artifact, options.imports)
        if options.json:
            print(json.dumps(json.loads(model.to_json()), indent=2))
        else:
            model.summary(expand_nested=True, print_fn=print)
        return EXIT_OK
    from keras_posenc.artifacts.inspection import inspect

    inspection = inspect(options.artifact)
    if options.json:
        print(json.dumps(dataclasses.asdict(inspection), default=str, indent=2))
    else:
        print(inspection)
    return EXIT_OK
