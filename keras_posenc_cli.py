"""The command `keras-posenc`: export, verify, roll back, inspect, draw.

Beside the package and not inside it, because importing the package imports
Keras and TensorFlow, which takes seconds: arguments are parsed first, and
TensorFlow's logs are silenced before it is imported.
"""

import argparse
import contextlib
import dataclasses
import importlib
import inspect
import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

_EPILOG = """\
exit codes: 0 done; 1 the artifact is wrong, or could not be made; 2 the
arguments are wrong.
"""


_PICTURES = (
    "bias",
    "circle",
    "heatmap",
    "similarity",
    "wavelengths",
    "waves",
    "winding",
)

_DTYPES = (
    "bool",
    *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)),
    *("bfloat16", "float16", "float32", "float64"),
    "string",
)


class _UsageError(Exception):
    """Something that the user gave, and the user can mend."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    Args:
        arguments: Those after the command's name. By default those of the
            process, whose last act this is then: once the code is settled,
            the signals that ask a process to end change it no more.
    """
    if sys.stderr is None:  # closed by the shell: 2>&-
        sys.stderr = open(os.devnull, "w")
    try:
        try:
            return _run(arguments)
        finally:  # after --help, too, which raises SystemExit
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has enough: | head
        # Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _run(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    for name, value in vars(options).items():
        if isinstance(value, Path):  # a shell leaves --out=~/models as it is
            setattr(options, name, Path(os.path.expanduser(value)))
    # Both before Keras is imported. Exports need TensorFlow, whatever backend
    # the model was trained on.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        is_last = arguments is None
        with _ended_in_order(is_last), native_logs_silenced():
            return options.run(options)
    except BrokenPipeError:
        raise
    except (_UsageError, ImportError) as error:  # which names the extra
        return _report_error(error, EXIT_USAGE)
    except Exception as error:
        if not _is_expected(error):
            raise
        usage = isinstance(error, ValueError | FileExistsError)
        return _report_error(error, EXIT_USAGE if usage else EXIT_FAILED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-posenc",
        description="Keras models as verified SavedModel, LiteRT and ONNX "
        "artifacts.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"keras-posenc {metadata.version('keras-posenc')}",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    export = commands.add_parser(
        "export",
        help="write a .keras model as a verified artifact",
        description="Writes a .keras model as a SavedModel version folder or "
        "as a LiteRT or ONNX file, once a fresh process without Keras has "
        "given the model's own answers with it.",
    )
    export.set_defaults(run=_export)
    _add_model(export)
    export.add_argument(
        "--to",
        required=True,
        choices=("saved_model", "litert", "onnx"),
        help="kind of artifact",
    )
    export.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="PATH",
        help="folder of versions (saved_model), .tflite file (litert) or .onnx "
        "file (onnx)",
    )
    export.add_argument(
        "--version",
        type=int,
        metavar="N",
        help="version number (saved_model); the next free one by default",
    )
    export.add_argument(
        "--labels",
        type=_labels,
        metavar="A,B|FILE",
        help="names of a classifier's classes (saved_model; litert with "
        "--task), with commas between, or a file with one on each line",
    )
    export.add_argument(
        "--warmup",
        action="store_true",
        help="write the inputs of the verification as warm-up requests "
        "(saved_model); needs keras-posenc[serving]",
    )
    export.add_argument(
        "--batching",
        type=_batching,
        nargs="?",
        const=True,
        metavar="NAME=N,...",
        help="write batching_params.pbtxt (saved_model): max_batch_size, "
        "batch_timeout_micros, max_enqueued_batches, "
        "allowed_batch_sizes=1:8:32; alone, parameters to begin with",
    )
    export.add_argument(
        "--keep",
        type=_length,
        metavar="N",
        help="how many versions to keep (saved_model), this one included, and "
        "beside it the one that is served until then; all by default",
    )
    export.add_argument(
        "--allow-flex",
        action="store_true",
        help="allow TensorFlow's operators (litert)",
    )
    _add_allowed(export)
    export.add_argument(
        "--quantization",
        choices=("float16", "int8", "int8-static"),
        help="fewer bits (litert): weights of half the size; of a quarter, "
        "with products in 8 bits; or these with ranges fixed by "
        "--representative",
    )
    export.add_argument(
        "--representative",
        type=Path,
        metavar="FILE.npz",
        help="inputs to fix the ranges of int8-static with, arrays by input "
        "name",
    )
    export.add_argument(
        "--task",
        choices=("text_classifier", "text_embedder"),
        help="MediaPipe task that the file is for (litert), from raw text; "
        "needs the extra mediapipe",
    )
    export.add_argument(
        "--no-verify",
        action="store_true",
        help="write the artifact without running it, as one with --allow-flex "
        "must be where no Flex delegate is installed",
    )
    _add_verification(export)

    verify = commands.add_parser(
        "verify",
        help="compare an artifact with its .keras model",
        description="Runs an artifact in a fresh process without Keras and "
        "compares its answers with those of its model.",
    )
    verify.set_defaults(run=_verify)
    _add_model(verify)
    verify.add_argument(
        "artifact",
        type=Path,
        metavar="ARTIFACT",
        help=".tflite or .onnx file, SavedModel folder, or folder of its "
        "versions",
    )
    _add_verification(verify)
    _add_allowed(verify)

    verify.add_argument(
        "--labels",
        type=_labels,
        metavar="A,B|FILE",
        help="those given to the export, to compare too",
    )

    rollback = commands.add_parser(
        "rollback",
        help="publish an older version once more, as the newest",
        description="Loads a version of a model in a process of its own, and "
        "copies it to the next free number, which servers take. The versions "
        "between stay.",
    )
    rollback.set_defaults(run=_rollback)
    rollback.add_argument(
        "base", type=Path, metavar="BASE", help="folder of the versions"
    )
    rollback.add_argument(
        "version", type=int, metavar="VERSION", help="number to go back to"
    )
    rollback.add_argument(
        "--no-verify",
        action="store_true",
        help="copy it without loading it first",
    )
    _add_allowed(rollback)
    _add_json(rollback)

    inspection = commands.add_parser(
        "inspect",
        help="show inputs, outputs, operators and sizes of an artifact",
        description="Shows the signatures, operators and sizes of a SavedModel "
        "folder, LiteRT or ONNX file, or the layers of a .keras model.",
    )
    inspection.set_defaults(run=_inspect)
    inspection.add_argument(
        "artifact",
        type=Path,
        metavar="ARTIFACT",
        help=".tflite, .onnx or .keras file, SavedModel folder, or folder of "
        "its versions",
    )
    _add_import(inspection)
    _add_json(inspection)

    bench = commands.add_parser(
        "bench",
        help="time a LiteRT file on this machine",
        description="Times a LiteRT file on this machine's processor, each "
        "signature and number of threads in a fresh process.",
    )
    bench.set_defaults(run=_bench)
    bench.add_argument(
        "artifact", type=Path, metavar="FILE", help=".tflite file"
    )
    bench.add_argument(
        "--signature",
        dest="signatures",
        action="append",
        metavar="NAME",
        help="a signature to time; may be repeated (default: all of them)",
    )
    bench.add_argument(
        "--lengths",
        type=_lengths,
        nargs="+",
        default=[[16, 64, 128, 512]],
        metavar="N",
        help="sizes for dynamic dimensions, with spaces or commas between "
        "(default: 16 64 128 512)",
    )
    bench.add_argument(
        "--threads",
        type=_lengths,
        nargs="+",
        metavar="N",
        help="numbers of threads, likewise (default: 1, and as many as "
        "processors, at most 4)",
    )
    bench.add_argument(
        "--repeats",
        type=_length,
        default=50,
        metavar="N",
        help="how often each is run (default: %(default)s)",
    )
    _add_json(bench)

    plot = commands.add_parser(
        "plot",
        help="draw a positional scheme",
        description="Draws a positional scheme; those that learn, as they "
        "begin. Needs matplotlib: pip install 'keras-posenc[plot]'.",
    )
    plot.set_defaults(run=_plot)
    plot.add_argument("picture", choices=_PICTURES, help="what to draw")
    plot.add_argument(
        "--scheme",
        default="sinusoidal",
        metavar="NAME",
        help="one of those that `keras-posenc compare` lists (default: "
        "%(default)s)",
    )
    plot.add_argument(
        "--length", type=_length, metavar="N", help="how many positions"
    )
    plot.add_argument(
        "--dim", type=_length, metavar="N", help="width of the encoding"
    )
    plot.add_argument(
        "--num-heads", type=_length, metavar="N", help="how many heads"
    )
    plot.add_argument("--head", type=int, metavar="N", help="which of them")
    plot.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FILE",
        help="the picture: .png, .svg, .pdf",
    )

    compare = commands.add_parser(
        "compare",
        help="show what each positional scheme does, as numbers",
        description="Measures every positional scheme against the conditions "
        "of a good encoding; those that learn, as they begin.",
    )
    compare.set_defaults(run=_compare)
    compare.add_argument(
        "--length",
        type=_length,
        default=128,
        metavar="N",
        help="how many positions (default: %(default)s)",
    )
    compare.add_argument(
        "--dim",
        type=_length,
        default=64,
        metavar="N",
        help="width of encodings, and of a head (default: %(default)s)",
    )
    _add_json(compare)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL.keras",
        help="a model that was saved by model.save('model.keras')",
    )
    _add_import(parser)
    _add_json(parser)


def _add_allowed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-op",
        dest="allow_operators",
        action="append",
        default=[],
        metavar="NAME",
        help="an operator that is not known to do nothing but compute, and may "
        "be there all the same (saved_model, litert); may be repeated",
    )


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="module that registers the model's own layers with Keras, found "
        "from here or installed; may be repeated",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON"
    )


def _add_verification(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--signature",
        type=_signature,
        action=_ByName,
        metavar="NAME[=INPUT:SHAPE,...]",
        help="a signature of the artifact, its inputs of the model's shapes or "
        "of these: one=ids:1x64, or ids:?x64 for any batch; may be repeated, "
        "and all share the weights",
    )
    parser.add_argument(
        "--max-length",
        type=_length,
        default=512,
        metavar="N",
        help="longest sequence to verify with (default: %(default)s)",
    )
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        metavar="X",
        help="largest difference that passes (default: 1e-5, and more for a "
        "quantized file, by what its rounding does to the model)",
    )
    parser.add_argument(
        "--agreement",
        type=_share,
        metavar="X",
        help="least share of rows in which a quantized file's largest score "
        "must be the model's, where rounding leaves a choice (default: 0.99)",
    )
    parser.add_argument(
        "--input",
        type=_input,
        action=_ByName,
        dest="inputs",
        metavar="NAME:DTYPE:SHAPE",
        help="an input of a model that does not know its own, a subclass of "
        "keras.Model or a Sequential without keras.Input: ids:int32:?x?, where "
        "? is any size and the first is the batch; may be repeated",
    )
    parser.add_argument(
        "--samples",
        type=Path,
        metavar="FILE.npz",
        help="further inputs to verify with, arrays by input name",
    )


def _length(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def _lengths(text: str) -> list[int]:
    return [_length(part) for part in text.split(",")]


def _tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no finite number from 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 to 1")
    return value


def _signature(text: str) -> tuple[str, dict[str, tuple[int | None, ...]]]:
    name, _, inputs = text.partition("=")
    shapes = {}
    for item in filter(None, inputs.split(",")):
        found = re.fullmatch(r"([^:]+):((?:\d+|\?)(?:x(?:\d+|\?))*)", item)
        if found is None:
            raise argparse.ArgumentTypeError(f"'{item}' is not INPUT:1x64")
        shapes[found[1]] = _shape(found[2])
    if not name or (inputs == "" and "=" in text):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=INPUT:1x64")
    return name, shapes


def _input(text: str) -> tuple[str, tuple[str, tuple[int | None, ...]]]:
    found = re.fullmatch(r"([^:]+):([^:]+):((?:\d+|\?)(?:x(?:\d+|\?))*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME:int32:?x?")
    if found[2] not in _DTYPES:
        raise argparse.ArgumentTypeError(
            f"'{found[2]}' of '{text}' is no dtype. There are: "
            f"{', '.join(_DTYPES)}"
        )
    return found[1], (found[2], _shape(found[3]))


def _shape(text: str) -> tuple[int | None, ...]:
    return tuple(None if size == "?" else int(size) for size in text.split("x"))


class _ByName(argparse.Action):
    """What may be repeated, under another name each time."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        name, value = values
        earlier = getattr(namespace, self.dest) or {}
        if name in earlier:
            parser.error(f"{option_string}: '{name}' is there twice")
        setattr(namespace, self.dest, {**earlier, name: value})


def _labels(text: str) -> list[str]:
    path = Path(text)
    # A name alone, such as "toxic", may be a label.
    if "," in text or not (path.suffix or path.name != text or path.is_file()):
        return text.split(",")
    try:
        # Some editors begin a file by a mark of its encoding.
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"'{text}' cannot be read: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error


def _batching(text: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        try:
            numbers = [int(number) for number in value.split(":")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"'{item}' is not NAME=N"
            ) from error
        is_list = name == "allowed_batch_sizes"
        parameters[name] = numbers if is_list else numbers[0]
        if not is_list and len(numbers) > 1:
            raise argparse.ArgumentTypeError(f"'{item}' is not NAME=N")
    return parameters


# What argparse calls them: "invalid int value".
_length.__name__ = _lengths.__name__ = "int"
_tolerance.__name__ = _share.__name__ = "float"


@contextlib.contextmanager
def native_logs_silenced() -> Iterator[None]:
    """Keeps what native code writes to standard error off the terminal.

    TensorFlow and LiteRT's converter log to file descriptor 2 whatever
    TF_CPP_MIN_LOG_LEVEL says. Python's own standard error goes on as it was.
    """
    sys.stderr.flush()
    try:
        terminal = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    stderr = sys.stderr
    with (
        open(os.devnull, "wb") as nowhere,
        os.fdopen(terminal, "w", errors="backslashreplace") as ours,
    ):
        os.dup2(nowhere.fileno(), 2)
        sys.stderr = ours
        try:
            yield
        finally:
            ours.flush()
            os.dup2(terminal, 2)
            sys.stderr = stderr


@contextlib.contextmanager
def _ended_in_order(is_last: bool) -> Iterator[None]:
    """Makes signals an exit, after which nothing half made is left.

    What is raised while TensorFlow's native code calls Python may come out as
    any other error, or as none: hence it is kept which signal there was.

    Args:
        is_last: Whether the process ends after this. Then signals are ignored
            from here on: Python and TensorFlow take a while to end, and the
            exit code is to tell what was done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    is_over = False

    def end(number: int, _: Any) -> None:
        if is_over:
            return
        received.append(number)
        sys.exit(128 + number)

    earlier = {
        number: handler
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None
        # Under nohup, and in the background of some shells, some are ignored.
        and (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    for number in earlier:
        signal.signal(number, end)
    try:
        yield
        is_over = True
    except BaseException:
        is_over = True
        if not received:
            raise
        if received[0] == signal.SIGINT:
            print("keras-posenc: interrupted", file=sys.stderr)
        sys.exit(128 + received[0])
    finally:
        for number, handler in earlier.items():
            # Not a function: Python takes its own away as it ends.
            signal.signal(number, signal.SIG_IGN if is_last else handler)


def _export(options: argparse.Namespace) -> int:
    own = _own_options(options)
    if options.no_verify and options.samples is not None:
        raise _UsageError("--samples cannot be used with --no-verify")
    if options.representative is not None:
        own["representative"] = _load_samples(options, "representative")
    samples = _load_samples(options)
    if options.version is not None:
        from keras_posenc.artifacts.versions import check_free, check_version

        check_free(options.out, check_version(options.version))
    model = _with_inputs(options, _load_model(options))
    import keras_posenc as kp

    export = getattr(kp, f"export_{options.to}")
    try:
        artifact = export(
            model,
            options.out,
            signatures=_signatures(options, model),
            samples=samples,
            max_length=options.max_length,
            tolerance=options.tolerance,
            verify=not options.no_verify,
            **own,
        )
    except kp.ExportVerificationError as error:
        if options.json and error.report is not None:
            print(json.dumps(error.report.to_dict(), indent=2))  # type: ignore
        raise
    if not options.json:
        print(artifact)
    elif artifact.report is None:
        print(json.dumps({"path": str(artifact.path)}, indent=2))
    else:
        print(json.dumps(artifact.report.to_dict(), indent=2))
    return EXIT_OK


def _signatures(options: argparse.Namespace, model: Any) -> Any:
    given = options.signature or {}
    if not options.inputs or getattr(model, "inputs", None):
        return {
            name: (model, shapes) if shapes else model
            for name, shapes in given.items()
        } or None
    import keras

    from keras_posenc.artifacts.signatures import DEFAULT

    def specs(shapes: dict[str, Any]) -> dict[str, Any]:
        for name in shapes:
            if name not in options.inputs:
                raise _UsageError(f"--signature: no --input names '{name}'")
        return {
            name: keras.InputSpec(shape=shapes.get(name, shape), dtype=dtype)
            for name, (dtype, shape) in options.inputs.items()
        }

    given = given or {DEFAULT: {}}
    return {name: (model, specs(shapes)) for name, shapes in given.items()}


def _with_inputs(options: argparse.Namespace, model: Any) -> Any:
    """A `Sequential` that begins with what `--input` says, if it is one."""
    if not options.inputs or not getattr(model, "inputs", None):
        return model
    import keras

    if not isinstance(model, keras.Sequential):
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise _UsageError(
            f"--input: '{options.model}' knows its inputs: {names}. "
            "--signature fixes their shapes"
        )
    if len(options.inputs) > 1:
        raise _UsageError("--input: a Sequential takes one")
    ((name, (dtype, shape)),) = options.inputs.items()
    begin = keras.Input(batch_shape=shape, dtype=dtype, name=name)
    try:
        return keras.Sequential([begin, *model.layers], name=model.name)
    except Exception as error:  # of whatever layer does not take it
        raise _UsageError(
            f"--input: '{options.model}' does not take {name} of shape "
            f"{shape} and dtype {dtype}: {_reason(error)}"
        ) from error


def _own_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that not every kind of artifact has."""
    kinds = {
        "version": ("saved_model",),
        "labels": ("saved_model", "litert"),
        "warmup": ("saved_model",),
        "batching": ("saved_model",),
        "keep": ("saved_model",),
        "allow_flex": ("litert",),
        "allow_operators": ("saved_model", "litert"),
        "quantization": ("litert",),
        "agreement": ("litert",),
        "representative": ("litert",),
        "task": ("litert",),
    }
    found = {}
    for name, takers in kinds.items():
        value = getattr(options, name)
        if options.to in takers:
            found[name] = value
        elif value not in (None, False, []):
            option = {"allow_operators": "allow-op"}.get(
                name, name.replace("_", "-")
            )
            raise _UsageError(f"--{option} is for --to {' or '.join(takers)}")
    if (
        options.to == "litert"
        and options.labels is not None
        and options.task != "text_classifier"
    ):
        raise _UsageError(
            "--labels of a LiteRT file name the scores of --task "
            "text_classifier, which is not given"
        )
    ending = {"litert": ".tflite", "onnx": ".onnx"}.get(options.to)
    if ending is not None and options.out.suffix != ending:
        raise _UsageError(
            f"--out of --to {options.to} must end in '{ending}'. Received: "
            f"'{options.out}'"
        )
    if ending is None and os.path.isfile(options.out):
        raise _UsageError(
            f"--out of --to {options.to} must be a folder, and "
            f"'{options.out}' is a file"
        )
    return found


def _verify(options: argparse.Namespace) -> int:
    samples = _load_samples(options)
    model = _with_inputs(options, _load_model(options))
    import keras_posenc as kp

    report = kp.verify(
        model,
        options.artifact,
        signatures=_signatures(options, model),
        labels=options.labels,
        samples=samples,
        max_length=options.max_length,
        tolerance=options.tolerance,
        agreement=options.agreement,
        allow_operators=options.allow_operators,
    )
    print(json.dumps(report.to_dict(), indent=2) if options.json else report)
    return EXIT_OK if report.passed else EXIT_FAILED


def _rollback(options: argparse.Namespace) -> int:
    import keras_posenc as kp

    verify = not options.no_verify
    path = kp.rollback(
        options.base,
        options.version,
        verify=verify,
        allow_operators=options.allow_operators,
    ).path
    if options.json:
        print(json.dumps({"path": str(path), "of": options.version}, indent=2))
    else:
        print(f"{path}: version {options.version} again")
    return EXIT_OK


def _inspect(options: argparse.Namespace) -> int:
    if options.artifact.suffix == ".keras":
        options.model = options.artifact
        model = _load_model(options)
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


def _bench(options: argparse.Namespace) -> int:
    import keras_posenc as kp

    found = kp.benchmark_litert(
        options.artifact,
        signatures=options.signatures,
        lengths=[*chain.from_iterable(options.lengths)],
        threads=options.threads and [*chain.from_iterable(options.threads)],
        repeats=options.repeats,
    )
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return EXIT_OK


def _plot(options: argparse.Namespace) -> int:
    given = {
        name: value
        for name in ("length", "dim", "num_heads", "head")
        if (value := getattr(options, name)) is not None
    }
    from keras_posenc.progress import progress

    with progress(True) as step:
        step(f"Drawing {options.out}")
        from keras_posenc import analysis

        draw = getattr(analysis, f"plot_{options.picture}")
        parameters = inspect.signature(draw).parameters
        for name in given:
            if name not in parameters:
                option = name.replace("_", "-")
                raise _UsageError(f"--{option} is not for {options.picture}")
        if options.picture == "wavelengths":
            if options.scheme != "sinusoidal":
                raise _UsageError("wavelengths are those of the sinusoid")
            arguments = []
        else:
            length = given.get("length", parameters["length"].default)
            arguments = [analysis.make_scheme(options.scheme, length)]
        ax = draw(*arguments, **given)
        ax.figure.savefig(options.out, dpi=150)
    print(f"Wrote {options.out}")
    return EXIT_OK


def _compare(options: argparse.Namespace) -> int:
    from keras_posenc.progress import progress

    with progress(True) as step:
        step("Loading Keras")
        import keras

        from keras_posenc import analysis

    keras.utils.set_random_seed(0)  # of those that learn
    found = analysis.compare(options.length, options.dim)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return EXIT_OK


def _load_model(options: argparse.Namespace) -> Any:
    path = options.model
    if path.is_dir():
        raise _UsageError(f"'{path}' must be a .keras file, and is a folder")
    if not path.is_file():
        raise _UsageError(f"'{path}' does not exist")
    if path.suffix != ".keras":
        raise _UsageError(f"'{path}' is no .keras file")
    from keras_posenc.progress import progress

    with progress(True) as step:
        step(f"Loading {path}")
        import keras_posenc  # noqa: F401  registers our layers with Keras
        from keras_posenc.artifacts.keras_file import load_keras_file

        if options.imports:  # else nothing of this folder is to run
            sys.path.append(os.getcwd())
        for name in options.imports:
            try:
                importlib.import_module(name)
            except Exception as error:  # whatever the module does
                raise _UsageError(f"--import {name}: {error}") from error
        try:
            return load_keras_file(path)
        except Exception as error:  # Keras raises whatever it met
            raise _UsageError(
                f"'{path}' cannot be loaded: {_reason(error)}"
            ) from error


def _reason(error: Exception) -> str:
    """Why Keras does not load a file, in one line."""
    unknown = re.search(r"Could not locate \w+ '([^']+)'", str(error))
    if unknown:
        return (
            f"'{unknown[1]}' is unknown. If it is of yours, name the module "
            "that registers it: --import MODULE"
        )
    if "Lambda" in str(error) and "arbitrary code" in str(error):
        return (
            "its Lambda layer is arbitrary code, and the command runs none "
            "that comes in a file. Export the model in Python, where it was "
            "made, or after keras.saving.load_model(path, safe_mode=False) if "
            "you trust the file; or make the layer a registered class"
        )
    # What Keras says of each layer whose variables are not those expected.
    lost = re.match(r"A total of \d+ objects could not be loaded", str(error))
    if lost:
        return (
            f"{lost[0]}. A model that Keras quantizes is to be saved before "
            "`quantize()`, and quantized once it is loaded"
        )
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _load_samples(
    options: argparse.Namespace, argument: str = "samples"
) -> Any:
    path = getattr(options, argument)
    if path is None:
        return None
    if path.suffix != ".npz":
        raise _UsageError(f"--{argument}: '{path}' is no .npz file")
    import numpy as np

    try:
        # Opened here: NumPy does not close a file that is a torn zip.
        with path.open("rb") as file:
            arrays = np.load(file)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise ValueError(f"'{path}' is no .npz file")
            return dict(arrays)
    except Exception as error:  # also those of zip files, and of empty ones
        if "Object arrays cannot be loaded" in str(error):
            raise _UsageError(
                f"--{argument}: '{path}' holds an array of dtype object. Save "
                "texts as np.array(texts), all of them strings"
            ) from error
        reason = getattr(error, "strerror", None)
        raise _UsageError(
            f"--{argument}: "
            + (f"'{path}' cannot be read: {reason}" if reason else str(error))
        ) from error


def _is_expected(error: Exception) -> bool:
    from keras_posenc.artifacts.errors import ExportError

    return isinstance(error, ExportError | ValueError | OSError | RuntimeError)


def _report_error(error: Exception, code: int) -> int:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # TensorFlow's colours
    print(f"keras-posenc: {plain}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
