"""`keras-posenc inspect`: what an artifact or a .keras model holds."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists, load_model
from keras_posenc_cli.process import EXIT_OK

if TYPE_CHECKING:
    from keras_posenc_cli.arguments import Commands


def add(commands: "Commands") -> None:
    parser = arguments.add_command(
        commands,
        "inspect",
        run,
        summary="show what an artifact is, and whether it is safe to run",
        description="Shows the signatures, operators and sizes of a SavedModel "
        "folder, LiteRT or ONNX file, or the layers of a .keras model, without "
        "running it.",
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
    arguments.add_details_or_json(parser, "all of these in tables")


def run(options: argparse.Namespace) -> int:
    if options.artifact.suffix == ".keras":
        model = load_model(options.artifact, options.imports)
        if options.json:
            print(json.dumps(json.loads(model.to_json()), indent=2))
        elif options.details:
            model.summary(expand_nested=True, print_fn=print)
        else:
            print(_line(model, options.artifact))
            if hasattr(model, "card"):  # as a generator has one
                print(model.card["signature"])
        return EXIT_OK
    check_exists(options.artifact)
    from keras_posenc.artifacts.inspection.inspection import inspect

    inspection = inspect(options.artifact)
    if options.json:
        print(json.dumps(dataclasses.asdict(inspection), default=str, indent=2))
    else:
        print(inspection.details() if options.details else inspection)
    return EXIT_OK


def _line(model: Any, path: Path) -> str:
    """What a .keras model is, in one line."""
    from keras_posenc.artifacts.ground import units

    inputs = [
        f"{tensor.name} {tensor.dtype} {tuple(tensor.shape)}"
        for tensor in getattr(model, "inputs", None) or []
    ]
    # One that was never called has no weights to count.
    parameters = (
        f"{model.count_params():,} parameters"
        if model.built
        else "not built: call it once on data before it is saved"
    )
    return (
        f"{path}: Keras {type(model).__name__} '{model.name}' of "
        f"{', '.join(inputs) or 'inputs that it does not know'}, "
        f"{parameters}, {units.size(path.stat().st_size)}"
    )
