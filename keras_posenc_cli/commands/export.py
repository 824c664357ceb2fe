"""`keras-posenc export`: exports a .keras model to a verified file."""

import argparse
import json
import os
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.checkpoints import is_checkpoint
from keras_posenc_cli.loading import (
    check_out,
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
from keras_posenc_cli.process import EXIT_OK, UsageError

_VERIFIED = (
    "after a fresh process without Keras has run it and reproduced the "
    "model's outputs."
)


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        summary="export a .keras model to a verified file",
        description=f"Exports a .keras model, {_VERIFIED}",
        example="keras-posenc export litert judge.keras --out judge.tflite",
    )
    kinds = parser.add_subparsers(
        required=True, title="formats", metavar="KIND"
    )
    _add_saved_model(kinds)
    _add_litert(kinds)
    _add_litertlm(kinds)
    _add_onnx(kinds)


def _add_saved_model(kinds: Commands) -> None:
    parser = add_command(
        kinds,
        "saved-model",
        run_saved_model,
        summary="folder of versions, for TensorFlow Serving",
        description="Exports a .keras model as a new version in a folder of "
        f"SavedModels, {_VERIFIED}",
        usage="MODEL.keras --out FOLDER [option ...]",
        example="keras-posenc export saved-model judge.keras --out "
        "serving/judge --batching",
    )
    _add_model_and_out(parser, "FOLDER", "folder of the versions")
    parser.add_argument(
        "--version",
        type=int,
        metavar="N",
        help="number of this version (default: the next free one)",
    )
    parser.add_argument(
        "--keep",
        type=arguments.length,
        metavar="N",
        help="how many versions to keep, this one included; the previous "
        "highest one stays too (default: all)",
    )
    add_options(
        parser,
        "--labels",
        help="names of the classes, or a file of them, one a line",
    )
    parser.add_argument(
        "--frozen",
        action="store_true",
        help="weights as constants, for small models on servers",
    )
    parser.add_argument(
        "--warmup",
        action="store_true",
        help="write warm-up requests; needs keras-posenc[serving]",
    )
    parser.add_argument(
        "--batching",
        type=arguments.batching,
        nargs="?",
        const=True,
        metavar="NAME=N",
        help="write batching_params.pbtxt; max_batch_size=32, "
        "batch_timeout_micros=1000, max_enqueued_batches, "
        "allowed_batch_sizes=1:8:32",
    )
    add_options(parser, "--allow-op")
    _add_shared(parser)


def _add_litert(kinds: Commands) -> None:
    parser = add_command(
        kinds,
        "litert",
        run_litert,
        summary=".tflite file, for phones, the web and small machines",
        description=f"Exports a .keras model as a LiteRT file, {_VERIFIED}",
        usage="MODEL.keras --out FILE.tflite [option ...]",
        example="keras-posenc export litert judge.keras --out judge.tflite "
        "--quantization int8",
    )
    _add_model_and_out(parser, "FILE.tflite", "the file")
    parser.add_argument(
        "--quantization",
        choices=(
            "float16",
            "int8",
            "int8-weights",
            "int8-static",
            "int4",
            "auto",
        ),
        metavar="KIND",
        help="float16, int8, int8-weights, int8-static, int4 or auto",
    )
    parser.add_argument(
        "--keep",
        type=arguments.share,
        metavar="X",
        help="auto: share of quality to keep (default: 0.99)",
    )
    add_options(parser, "--limit")
    parser.add_argument(
        "--task",
        choices=("text_classifier", "text_embedder"),
        metavar="TASK",
        help="for MediaPipe: text_classifier or text_embedder",
    )
    add_options(
        parser,
        "--labels",
        help="names of the text classifier's classes, or a file",
    )
    add_options(parser, "--allow-op")
    _add_shared(parser)


def _add_litertlm(kinds: Commands) -> None:
    parser = add_command(
        kinds,
        "litertlm",
        run_litertlm,
        summary=".litertlm package of a language model or a text embedder",
        description="Exports a language model, or a model from texts to "
        "vectors, as a package for LiteRT-LM, Google's engine on Android, iOS, "
        "the web and desktops, after that engine has reproduced the model's "
        "tokens, and its texts and chats or its vectors. Needs "
        "keras-posenc[litertlm].",
        usage="MODEL --out FILE.litertlm [option ...]",
        example="keras-posenc export litertlm SmolLM2 --out smol.litertlm "
        "--quantization int8",
    )
    parser.add_argument(
        "model",
        type=arguments.path,
        metavar="MODEL",
        help="folder of a Hugging Face checkpoint, or .keras file of a "
        "generator or an embedder",
    )
    add_options(
        parser,
        "--out",
        required=True,
        metavar="FILE.litertlm",
        help="the package",
    )
    parser.add_argument(
        "--quantization",
        metavar="KIND",
        help="float16, int8, int8-weights, int4 or a recipe's .json; of an "
        "embedder float16 or int8 (default: float32)",
    )
    parser.add_argument(
        "--lengths",
        type=arguments.lengths,
        metavar="N,N",
        help="of an embedder, tokens of a text that there are signatures for "
        "(default: 64,128,256,512, as far as the model takes them)",
    )
    parser.add_argument(
        "--prefill-lengths",
        type=arguments.lengths,
        metavar="N,N",
        help="sizes of the chunks of a prompt (default: 32,128,512)",
    )
    parser.add_argument(
        "--cache-length",
        type=arguments.length,
        metavar="N",
        help="tokens of a chat, replies included (default: 2048)",
    )
    parser.add_argument(
        "--tokenizer",
        type=arguments.path,
        metavar="PATH",
        help="tokenizer.json, SentencePiece model, or a folder with one "
        "(default: the checkpoint's, or the model's own)",
    )
    parser.add_argument(
        "--tolerance",
        type=arguments.tolerance,
        metavar="X",
        help="largest difference allowed, if not quantized (default: 1e-5)",
    )
    add_options(parser, "--limit")
    add_options(parser, "--no-verify", help="write the file without running it")
    add_options(parser, "--import")
    add_details_or_json(parser, "every case of the verification")


def _add_onnx(kinds: Commands) -> None:
    parser = add_command(
        kinds,
        "onnx",
        run_onnx,
        summary=".onnx file, for ONNX Runtime and OpenVINO",
        description=f"Exports a .keras model as an ONNX file, {_VERIFIED} "
        "Needs keras-posenc[onnx].",
        usage="MODEL.keras --out FILE.onnx [option ...]",
        example="keras-posenc export onnx judge.keras --out judge.onnx "
        "--signature one=ids:1x64",
    )
    _add_model_and_out(parser, "FILE.onnx", "the file")
    parser.add_argument(
        "--quantization",
        choices=("int8",),
        metavar="KIND",
        help="int8",
    )
    add_options(parser, "--limit")
    _add_shared(parser)


def _add_model_and_out(
    parser: argparse.ArgumentParser, metavar: str, what: str
) -> None:
    add_options(parser, "model")
    add_options(parser, "--out", required=True, metavar=metavar, help=what)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add_verification(parser)
    add_options(parser, "--no-verify", help="write the file without running it")
    add_options(parser, "--import")
    add_details_or_json(parser, "every case of the verification")


def run_saved_model(options: argparse.Namespace) -> int:
    if os.path.isfile(options.out):
        raise UsageError(
            f"--out must be a folder of versions, and '{options.out}' is a file"
        )
    return _export(
        options,
        "export_saved_model",
        version=options.version,
        keep=options.keep,
        labels=options.labels,
        frozen=options.frozen,
        warmup=options.warmup,
        batching=options.batching,
        allow_operators=options.allow_operators,
    )


def run_litert(options: argparse.Namespace) -> int:
    check_out(options.out, ".tflite")
    if options.quantization == "auto":
        return _quantize(options)
    if options.keep is not None:
        raise UsageError("--keep is the share that --quantization auto keeps")
    if options.labels is not None and options.task != "text_classifier":
        raise UsageError(
            "--labels name the scores of --task text_classifier, which is not "
            "given"
        )
    return _export(
        options,
        "export_litert",
        quantization=options.quantization,
        limits=options.limits,
        task=options.task,
        labels=options.labels,
        allow_operators=options.allow_operators,
    )


def _quantize(options: argparse.Namespace) -> int:
    """Finds the smallest file that keeps a share of quality."""
    if options.samples is None:
        raise UsageError(
            "--quantization auto needs --samples FILE.npz to measure the "
            "quality with: some hundred real inputs. Write the file in Python, "
            "with an array for each input by its name: "
            "np.savez('s.npz', text=np.array(texts[:600]))"
        )
    keep = {} if options.keep is None else {"keep": options.keep}
    return _export(
        options,
        "quantize",
        limits=options.limits,
        task=options.task,
        labels=options.labels,
        allow_operators=options.allow_operators,
        **keep,
    )


def run_litertlm(options: argparse.Namespace) -> int:
    check_out(options.out, ".litertlm")
    model = load_model(options.model, options.imports)
    tokenizer = options.tokenizer
    makes_vectors = hasattr(model, "embedder_parts")
    if tokenizer is None and is_checkpoint(options.model) and not makes_vectors:
        tokenizer = options.model
    return _publish(
        options,
        "export_litertlm",
        model,
        quantization=options.quantization,
        lengths=options.lengths,
        prefill_lengths=options.prefill_lengths,
        cache_length=options.cache_length,
        tokenizer=tokenizer,
        limits=options.limits,
    )


def run_onnx(options: argparse.Namespace) -> int:
    check_out(options.out, ".onnx")
    return _export(
        options,
        "export_onnx",
        quantization=options.quantization,
        limits=options.limits,
    )


def _export(options: argparse.Namespace, function: str, **own: Any) -> int:
    """Exports by a public function, with `own` arguments of its kind."""
    if options.no_verify and options.samples is not None:
        raise UsageError("--samples cannot be used with --no-verify")
    samples = load_arrays("--samples", options.samples)
    if own.get("version") is not None:
        from keras_posenc.export.versions import check_free, check_version

        check_free(options.out, check_version(own["version"]))
    model = load_model(options.model, options.imports, options.inputs)
    return _publish(
        options,
        function,
        model,
        signatures=make_signatures(model, options.signatures, options.inputs),
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
            verify=not options.no_verify,
            **own,
        )
    except kp.ExportVerificationError as error:
        if options.json and error.report is not None:
            print(json.dumps(error.report.to_dict(), indent=2))  # type: ignore
        raise
    if not options.json:
        is_long = options.details and exported.report is not None
        print(exported.report.details() if is_long else exported)
    elif exported.report is None:
        print(json.dumps({"path": str(exported.path)}, indent=2))
    else:
        print(json.dumps(exported.report.to_dict(), indent=2))
    return EXIT_OK
