"""`keras-posenc verify`: compares an exported file with its .keras model."""

import argparse
import json

from keras_posenc_cli.loading import (
    check_exists,
    load_arrays,
    load_model,
    make_signatures,
)
from keras_posenc_cli.options import (
    Commands,
    add_command,
    add_details_or_json,
    add_options,
    add_verification,
)
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        summary="compare an exported file with its .keras model",
        description="Runs an exported file in a fresh process without Keras "
        "and compares its outputs with those of its model.",
        usage="MODEL.keras EXPORTED_MODEL [option ...]",
        example="keras-posenc verify judge.keras judge.tflite --samples "
        "texts.npz",
    )
    add_options(parser, "model")
    add_options(
        parser,
        "exported",
        help="SavedModel folder, folder of its versions, .tflite, .litertlm or "
        ".onnx file",
    )
    add_verification(parser)
    add_options(
        parser,
        "--agreement",
        "--max-kl",
        "--max-perplexity",
        "--allow-op",
    )
    add_options(
        parser, "--labels", help="those of the export, to compare them too"
    )
    parser.add_argument(
        "--quantization",
        metavar="RECIPE.json",
        help="that of the export, if it was a recipe",
    )
    add_options(parser, "--import")
    add_details_or_json(parser, "every case")


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    samples = load_arrays("--samples", options.samples)
    model = load_model(options.model, options.imports, options.inputs)
    import keras_posenc as kp

    report = kp.verify(
        model,
        options.exported,
        signatures=make_signatures(model, options.signatures, options.inputs),
        labels=options.labels,
        quantization=options.quantization,
        samples=samples,
        max_length=options.max_length,
        tolerance=options.tolerance,
        agreement=options.agreement,
        max_kl=options.max_kl,
        max_perplexity_ratio=options.max_perplexity_ratio,
        allow_operators=options.allow_operators,
    )
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        is_short = report.passed and not options.details
        print(report if is_short else report.details())
    return EXIT_OK if report.passed else EXIT_FAILED
