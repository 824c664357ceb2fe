"""`keras-posenc verify`: checks that an exported file gives its outputs."""

import argparse
import json

from keras_posenc_cli.loading import (
    check_exists,
    load_arrays,
    load_model,
    make_signatures,
    without_keras,
)
from keras_posenc_cli.options import (
    Commands,
    add_command,
    add_details_or_json,
    add_options,
    add_verification,
)
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK, UsageError


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        summary="check that an exported file gives its model's outputs",
        description="Runs the cases that are kept with an exported file in the "
        "runtimes installed here. With MODEL.keras it computes the outputs "
        "again.",
        usage="EXPORTED_MODEL [MODEL.keras] [option ...]",
        example="keras-posenc verify judge.tflite",
    )
    add_options(
        parser,
        "exported",
        help="SavedModel (or folder of versions), .tflite, .litertlm, .onnx",
    )
    add_options(
        parser,
        "model",
        nargs="?",
        help="its model, or a Hugging Face checkpoint; most options need it",
    )
    parser.add_argument(
        "--runtime",
        dest="runtimes",
        action="append",
        metavar="NAME",
        help="without a model: litert, litert_compiled, onnx, openvino, "
        "saved_model or litertlm (default: all installed)",
    )
    add_verification(parser)
    add_options(parser, "--limit", "--allow-op")
    add_options(
        parser, "--labels", help="those of the export, to compare them too"
    )
    add_options(parser, "--import")
    add_details_or_json(parser, "every case")


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    if options.exported.suffix == ".keras":
        raise UsageError(
            f"'{options.exported}' is a model: give the exported file first, "
            f"keras-posenc verify {options.model or 'FILE'} {options.exported}"
        )
    samples = load_arrays("--samples", options.samples)
    model, signatures = None, options.signatures or None
    if options.model is None:
        without_keras()
    else:
        model = load_model(options.model, options.imports, options.inputs)
        signatures = make_signatures(model, options.signatures, options.inputs)
    from keras_posenc.export.verify import verify_export

    report = verify_export(
        options.exported,
        model,
        runtimes=options.runtimes,
        signatures=signatures,
        labels=options.labels,
        samples=samples,
        max_length=options.max_length,
        tolerance=options.tolerance,
        limits=options.limits,
        allow_operators=options.allow_operators,
    )
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        is_short = report.passed and not options.details
        print(report if is_short else report.details())
    return EXIT_OK if report.passed else EXIT_FAILED
