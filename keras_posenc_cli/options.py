"""Parsers of commands, and the options that several commands have."""

import argparse
import textwrap
from collections.abc import Callable
from typing import Any, TypeAlias

from keras_posenc_cli import arguments
from keras_posenc_cli.process import in_options

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
#: A name with its metavar, or without one that of a flag; its help; and the
#: function that reads a value, or other arguments of `add_argument`.
Row: TypeAlias = tuple[str, str] | tuple[str, str, Any]

REQUIRED_PATH = {"type": arguments.path, "required": True}
SEVERAL = {"action": "append", "default": []}
# Options of several commands, by name.
_SHARED: dict[str, Row] = {
    "model": (
        "model MODEL.keras",
        "file of model.save(), or a Hugging Face checkpoint",
        arguments.path,
    ),
    "exported": (
        "exported EXPORTED_MODEL",
        "SavedModel folder, folder of its versions, .tflite or .onnx file",
        arguments.path,
    ),
    "--signature": (
        "--signature NAME",
        "signature to run (default: serving_default)",
    ),
    "--seed": (
        "--seed N",
        "seed of sampling (default: random)",
        arguments.seed,
    ),
    "--limit": (
        "--limit NAME=X",
        "quantized: what it may lose: sqnr=20, agreement=0.9, cosine=0.9, "
        "kl=0.2 or perplexity=1.2; may be repeated",
        arguments.by_name(arguments.limit, "limits"),
    ),
    "--tolerance": (
        "--tolerance X",
        "largest difference allowed, if not quantized (default: 1e-5)",
        arguments.tolerance,
    ),
    "--import": (
        "--import MODULE",
        "module of the model's own layers; may be repeated",
        {"dest": "imports", **SEVERAL},
    ),
    "--allow-op": (
        "--allow-op NAME",
        "an operator that may do more than compute; repeatable",
        {"dest": "allow_operators", **SEVERAL},
    ),
    "--no-verify": (
        "--no-verify",
        "write the file without running it",
        {"dest": "verify", "action": "store_false"},
    ),
    "--json": ("--json", "print the result as JSON"),
}
# Signatures of an exported model, and inputs of its verification.
VERIFICATION: tuple[Row | str, ...] = (
    (
        "--signature SPEC",
        "name of a signature, or with shapes of its inputs, ? any size: "
        "one=ids:1x64,mask:1x?; may be repeated",
        arguments.by_name(arguments.signature, "signatures"),
    ),
    (
        "--samples FILE.npz",
        "further inputs to verify with, arrays by input name",
        arguments.path,
    ),
    (
        "--max-length N",
        "longest sequence to verify with (default: 512, or the tokenizer's "
        "limit if that is less)",
        arguments.length,
    ),
    "--tolerance",
)
# Without this, oneDNN keeps all memory that it ever used: more than the
# weights. Long computations are a sixth faster with it.
LITTLE_MEMORY = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int] | None,
    *rows: Row | str | list[Row | str],
    summary: str,
    description: str,
    example: str,
    **defaults: Any,
) -> argparse.ArgumentParser:
    """Adds the parser of a command.

    `rows` are its arguments, names of shared ones, and lists of those that
    exclude one another; `run` is None if it has commands of its own;
    `**defaults` are further values of what is parsed.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, 80),
        epilog=f"example:\n  keras-posenc {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for row in rows:
        if isinstance(row, list):
            group = parser.add_mutually_exclusive_group()
            for each in row:
                _add(group, each)
        else:
            _add(parser, row)
    if run is not None:
        parser.usage = _usage(parser)
        parser.set_defaults(run=run, parser=parser, **defaults)
    return parser


def _add(parser: argparse._ActionsContainer, row: Row | str) -> None:
    spec, text, *more = _SHARED[row] if isinstance(row, str) else row
    name, _, metavar = spec.partition(" ")
    given: dict[str, Any] = {"metavar": metavar}
    if not metavar:
        given = {"action": "store_true"}
    for each in more:
        given |= {"type": each} if callable(each) else each
    parser.add_argument(name, help=text, **given)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Returns a usage that names what must be given alone."""
    parts = ["%(prog)s"]
    for action in parser._actions:
        value = str(action.metavar)
        if action.nargs == "+":
            value += f" [{value} ...]"
        if action.option_strings and action.required:
            parts.append(f"{action.option_strings[0]} {action.metavar}")
        elif not action.option_strings:
            parts.append(f"[{value}]" if action.nargs == "?" else value)
    return " ".join([*parts, "[option ...]"])


def details_or_json(what: str) -> list[Row | str]:
    """Returns options for longer forms of a result."""
    return [("--details", f"print {what}"), "--json"]


def option_names(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Returns the command's names of arguments that it passes to Python."""
    names = {
        action.dest: [str(action.metavar), *action.option_strings][-1]
        for action in parser._actions
    }
    if "verify" in names:  # of an export
        names["path"] = names["base_path"] = names["out"]
        names.setdefault("samples", "samples of kp.export_litertlm")
    verify = "keras-posenc verify FILE MODEL.keras"
    return {**names, "kp.verify_export(path, model)": verify}


def print_report(report: str, parser: argparse.ArgumentParser) -> None:
    """Prints a report, whose first line has a path, with the options."""
    first, *others = report.split("\n", 1)
    print(
        first, *(in_options(x, option_names(parser)) for x in others), sep="\n"
    )
