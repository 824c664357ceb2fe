"""`keras-posenc verify` and `diff`: outputs of exported files, compared."""

import argparse
import dataclasses
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import (
    check_exists,
    load_model,
    load_samples,
    make_signatures,
    without_keras,
)
from keras_posenc_cli.options import (
    LITTLE_MEMORY,
    VERIFICATION,
    Commands,
    add_command,
    details_or_json,
    print_report,
)
from keras_posenc_cli.process import EXIT_FAILED, EXIT_OK, UsageError


def add(commands: Commands) -> None:
    add_command(
        commands,
        "verify",
        run,
        (
            "exported EXPORTED_MODEL",
            "SavedModel (or folder of versions), .tflite, .litertlm, .onnx",
            arguments.path,
        ),
        [
            (
                "model MODEL.keras",
                "its model, or a Hugging Face checkpoint; most options need it",
                {"type": arguments.path, "nargs": "?"},
            ),
            (
                "--runtime NAME",
                "without a model: litert, litert_compiled, onnx, saved_model "
                "or litertlm (default: all installed)",
                {"dest": "runtimes", "action": "append"},
            ),
        ],
        *VERIFICATION,
        "--limit",
        "--allow-op",
        (
            "--labels A,B|FILE",
            "those of the export, to compare them too",
            arguments.labels,
        ),
        "--import",
        details_or_json("every case"),
        summary="check that an exported file gives its model's outputs",
        description="Runs the cases that are kept with an exported file in the "
        "runtimes installed here. With MODEL.keras it computes the outputs "
        "again.",
        example="verify order.tflite",
        environment=LITTLE_MEMORY,
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    if options.exported.suffix == ".keras":
        raise UsageError(
            f"'{options.exported}' is a model: give the exported file first, "
            f"keras-posenc verify {options.model or 'FILE'} {options.exported}"
        )
    samples = load_samples(options.samples)
    model, signatures = None, options.signatures or None
    if options.model is None:
        without_keras()
    else:
        model = load_model(options.model, options.imports)
        signatures = make_signatures(model, options.signatures)
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
        text = str(report) if is_short else report.details()
        print_report(text, options.parser)
    return EXIT_OK if report.passed else EXIT_FAILED


def add_diff(commands: Commands) -> None:
    add_command(
        commands,
        "diff",
        run_diff,
        (
            "exported FIRST",
            "SavedModel, .tflite or .onnx file with its cases",
            arguments.path,
        ),
        (
            "second SECOND",
            "another one, with inputs of the same names",
            arguments.path,
        ),
        "--allow-op",
        "--json",
        summary="compare two exported files of one model",
        description="Runs two exported files of one model, of one format or "
        "two, on the cases that are kept with the first, and prints how far "
        "the outputs of the second are from those of the first. Needs no "
        "Keras.",
        example="diff order.tflite order-int8.tflite",
    )


def run_diff(options: argparse.Namespace) -> int:
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
