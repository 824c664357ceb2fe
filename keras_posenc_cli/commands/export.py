"""`keras-posenc export`: exports a .keras model to a verified file."""

import argparse
import json
import os
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import (
    check_out,
    load_model,
    load_samples,
    make_signatures,
)
from keras_posenc_cli.options import (
    LITTLE_MEMORY,
    REQUIRED_PATH,
    VERIFICATION,
    Commands,
    Row,
    add_command,
    details_or_json,
    print_report,
)
from keras_posenc_cli.process import EXIT_OK, UsageError

_VERIFIED = (
    "after a fresh process without Keras has run it and reproduced the "
    "model's outputs."
)


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        None,
        summary="export a .keras model to a verified file",
        description=f"Exports a .keras model, {_VERIFIED}",
        example="export litert order.keras --out order.tflite",
    )
    kinds = parser.add_subparsers(
        required=True, title="formats", metavar="KIND"
    )
    _add_saved_model(kinds)
    _add_litert(kinds)
    _add_litertlm(kinds)
    _add_onnx(kinds)


_SHARED: tuple[Row | str | list[Row | str], ...] = (
    *VERIFICATION,
    "--no-verify",
    "--import",
    details_or_json("every case of the verification"),
)


def _add_saved_model(kinds: Commands) -> None:
    add_command(
        kinds,
        "saved-model",
        run_saved_model,
        "model",
        ("--out FOLDER", "folder of the versions", REQUIRED_PATH),
        (
            "--version N",
            "number of this version (default: the next free one)",
            arguments.length,
        ),
        (
            "--keep N",
            "how many versions to keep, this one included; the previous "
            "highest one stays too (default: all)",
            arguments.length,
        ),
        (
            "--labels A,B|FILE",
            "names of the classes, or a file of them, one a line",
            arguments.labels,
        ),
        ("--warmup", "write warm-up requests; needs keras-posenc[serving]"),
        (
            "--batching NAME=N",
            "write batching_params.pbtxt; max_batch_size=32, "
            "batch_timeout_micros=1000, max_enqueued_batches, "
            "allowed_batch_sizes=1:8:32",
            {"type": arguments.batching, "nargs": "?", "const": True},
        ),
        "--allow-op",
        *_SHARED,
        summary="folder of versions, for TensorFlow Serving",
        description="Exports a .keras model as a new version in a folder of "
        f"SavedModels, {_VERIFIED}",
        example="export saved-model order.keras --out serving/order --batching",
        environment=LITTLE_MEMORY,
    )


def _add_litert(kinds: Commands) -> None:
    add_command(
        kinds,
        "litert",
        run_litert,
        "model",
        ("--out FILE.tflite", "the file", REQUIRED_PATH),
        (
            "--quantization KIND",
            f"{', '.join(arguments.MORE_MODES)} or a recipe's .json",
            arguments.more_modes,
        ),
        (
            "--keep X",
            "auto: share of quality to keep (default: 0.99)",
            arguments.share,
        ),
        "--limit",
        (
            "--task TASK",
            "for MediaPipe: text_classifier or text_embedder",
            {"choices": ("text_classifier", "text_embedder")},
        ),
        (
            "--labels A,B|FILE",
            "names of the text classifier's classes, or a file",
            arguments.labels,
        ),
        "--allow-op",
        *_SHARED,
        summary=".tflite file, for phones, the web and small machines",
        description=f"Exports a .keras model as a LiteRT file, {_VERIFIED}",
        example="export litert order.keras --out order.tflite "
        "--quantization int8",
        environment=LITTLE_MEMORY,
    )


def _add_litertlm(kinds: Commands) -> None:
    add_command(
        kinds,
        "litertlm",
        run_litertlm,
        (
            "model MODEL",
            "folder of a Hugging Face checkpoint, or .keras file of a "
            "generator or an embedder",
            arguments.path,
        ),
        ("--out FILE.litertlm", "the package", REQUIRED_PATH),
        (
            "--quantization KIND",
            "float16, int8, int8-weights, int4 or a recipe's .json; of an "
            "embedder float16 or int8 (default: float32)",
            arguments.mode,
        ),
        (
            "--lengths N,N",
            "of an embedder, tokens of a text that there are signatures for "
            "(default: 64,128,256,512, as far as the model takes them)",
            arguments.lengths,
        ),
        (
            "--prefill-lengths N,N",
            "sizes of the chunks of a prompt (default: 32,128,512)",
            arguments.lengths,
        ),
        (
            "--cache-length N",
            "tokens of a chat, replies included (default: 2048)",
            arguments.length,
        ),
        "--tolerance",
        "--limit",
        "--no-verify",
        "--import",
        details_or_json("every case of the verification"),
        summary=".litertlm package of a language model or a text embedder",
        description="Exports a language model, or a model from texts to "
        "vectors, as a package for LiteRT-LM, Google's engine on Android, iOS, "
        "the web and desktops, after that engine has reproduced the model's "
        "tokens, and its texts and chats or its vectors. Needs "
        "keras-posenc[litertlm].",
        example="export litertlm SmolLM2 --out smol.litertlm "
        "--quantization int8",
    )


def _add_onnx(kinds: Commands) -> None:
    add_command(
        kinds,
        "onnx",
        run_onnx,
        "model",
        ("--out FILE.onnx", "the file", REQUIRED_PATH),
        ("--quantization KIND", "int8", {"choices": ("int8",)}),
        "--limit",
        *_SHARED,
        summary=".onnx file, for ONNX Runtime and OpenVINO",
        description=f"Exports a .keras model as an ONNX file, {_VERIFIED} "
        "Needs keras-posenc[onnx].",
        example="export onnx order.keras --out order.onnx "
        "--signature one=ids:1x64",
        environment=LITTLE_MEMORY,
    )


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names}


def _check(options: argparse.Namespace, ending: str) -> None:
    """Raises `UsageError` for what a file of one kind cannot have."""
    check_out(options.out, ending)
    is_exact = options.quantization is None
    if (options.limits if is_exact else options.tolerance) is not None:
        raise UsageError(
            "--limit is for files with --quantization, and --tolerance for "
            "files without"
        )


def run_saved_model(options: argparse.Namespace) -> int:
    if os.path.isfile(options.out):
        raise UsageError(
            f"--out must be a folder of versions, and '{options.out}' is a file"
        )
    names = "version", "keep", "labels", "warmup", "batching"
    own = _given(options, *names, "allow_operators")
    return _export(options, "export_saved_model", **own)


def run_litert(options: argparse.Namespace) -> int:
    _check(options, ".tflite")
    kind, is_auto = options.quantization, options.quantization == "auto"
    own = _given(options, "limits", "task", "labels", "allow_operators")
    if kind in ("auto", "int8-static") and options.samples is None:
        what = "the quality" if is_auto else "the ranges of numbers"
        raise UsageError(
            f"--quantization {kind} needs --samples FILE.npz to measure {what} "
            "with: some hundred real inputs, an array for each by its name"
        )
    if is_auto:
        keep = {} if options.keep is None else {"keep": options.keep}
        return _export(options, "quantize", **own, **keep)
    if options.keep is not None:
        raise UsageError("--keep is the share that --quantization auto keeps")
    if options.labels is not None and options.task != "text_classifier":
        raise UsageError(
            "--labels name the scores of --task text_classifier, which is not "
            "given"
        )
    return _export(options, "export_litert", quantization=kind, **own)


def run_litertlm(options: argparse.Namespace) -> int:
    _check(options, ".litertlm")
    model = load_model(options.model, options.imports)
    names = "quantization", "limits", "lengths"
    return _publish(
        options,
        "export_litertlm",
        model,
        **_given(options, *names, "prefill_lengths", "cache_length"),
    )


def run_onnx(options: argparse.Namespace) -> int:
    _check(options, ".onnx")
    own = _given(options, "quantization", "limits")
    return _export(options, "export_onnx", **own)


def _export(options: argparse.Namespace, function: str, **own: Any) -> int:
    """Exports by a public function, with `own` arguments of its kind."""
    samples = load_samples(options.samples)
    needs_samples = own.get("quantization") == "int8-static"
    if samples is not None and not (options.verify or needs_samples):
        raise UsageError("--samples cannot be used with --no-verify")
    if own.get("version") is not None:
        from keras_posenc.export.versions import check_free, check_version

        check_free(options.out, check_version(own["version"]))
    model = load_model(options.model, options.imports)
    return _publish(
        options,
        function,
        model,
        signatures=make_signatures(model, options.signatures),
        samples=samples,
        max_length=options.max_length,
        **own,
    )


def _publish(
    options: argparse.Namespace, function: str, model: Any, **own: Any
) -> int:
    """Calls a public function, and prints what it returns."""
    import keras_posenc as kp

    try:
        exported = getattr(kp, function)(
            model,
            options.out,
            tolerance=options.tolerance,
            verify=options.verify,
            **own,
        )
    except kp.ExportVerificationError as error:
        if options.json and error.report is not None:
            print(json.dumps(error.report.to_dict(), indent=2))  # type: ignore
        raise
    report, recipe = exported.report, getattr(exported, "quantization", None)
    found = {"path": str(exported.path)}
    if report is not None:
        found = report.to_dict()
    if options.json:
        more = {} if recipe is None else {"recipe": recipe}
        print(json.dumps({**found, **more}, indent=2))
        return EXIT_OK
    is_long = options.details and report is not None
    text = report.details() if is_long else str(exported)
    print_report(text, options.parser)
    if recipe is not None and not isinstance(recipe, str):
        code = f"quantization={json.dumps(recipe)}"
        print(f"recipe, for kp.export_litert(..., {code})")
    return EXIT_OK
