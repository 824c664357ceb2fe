"""The parsers of commands, and the table of the options that several have."""

import argparse
import textwrap
from collections.abc import Callable
from typing import Any, TypeAlias

from keras_posenc_cli import arguments

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# What `add_argument` is given, by name.
_SHARED: dict[str, dict[str, Any]] = {
    "model": {
        "type": arguments.path,
        "metavar": "MODEL.keras",
        "help": "file of model.save(), or a Hugging Face checkpoint",
    },
    "artifact": {
        "type": arguments.path,
        "metavar": "ARTIFACT",
        "help": "SavedModel folder, folder of its versions, .tflite or .onnx "
        "file",
    },
    "--out": {"type": arguments.path},
    "--signature": {
        "metavar": "NAME",
        "help": "signature of the artifact (default: serving_default)",
    },
    "--labels": {"type": arguments.labels, "metavar": "A,B|FILE"},
    "--compiled": {
        "type": arguments.sizes,
        "nargs": "?",
        "const": True,
        "metavar": "NAME=N",
    },
    "--agreement": {
        "type": arguments.share,
        "metavar": "X",
        "help": "least share of clearly decided rows that keep their largest "
        "score in a quantized file (default: 0.99)",
    },
    "--import": {
        "dest": "imports",
        "action": "append",
        "default": [],
        "metavar": "MODULE",
        "help": "module of the model's own layers; may be repeated",
    },
    "--allow-op": {
        "dest": "allow_operators",
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "an operator to allow that may do more than compute; may be "
        "repeated",
    },
    "--no-verify": {"action": "store_true"},
    "--details": {"action": "store_true"},
    "--json": {"action": "store_true", "help": "print the result as JSON"},
}
# The signatures of an exported model, and what it is verified with.
_VERIFICATION: dict[str, dict[str, Any]] = {
    "--signature": {
        "dest": "signatures",
        "type": arguments.signature,
        "action": arguments.ByName,
        "metavar": "SPEC",
        "help": "name of a signature, or with shapes of its inputs, ? any "
        "size: one=ids:1x64,mask:1x?; may be repeated",
    },
    "--input": {
        "dest": "inputs",
        "type": arguments.input_spec,
        "action": arguments.ByName,
        "metavar": "SPEC",
        "help": "an input of a subclassed model, or of a Sequential of numbers "
        "without keras.Input: ids:int32:?x?, batch first, ? any size; may be "
        "repeated",
    },
    "--samples": {
        "type": arguments.path,
        "metavar": "FILE.npz",
        "help": "further inputs to verify with, arrays by input name",
    },
    "--max-length": {
        "type": arguments.length,
        "metavar": "N",
        "help": "longest sequence to verify with (default: 512, or the "
        "tokenizer's limit if that is less)",
    },
    "--tolerance": {
        "type": arguments.tolerance,
        "metavar": "X",
        "help": "largest difference that passes (default: 1e-5, and for a "
        "quantized file what its rounding does to the model)",
    },
}


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int] | None = None,
    *,
    summary: str,
    description: str,
    usage: str | None = None,
    example: str,
) -> argparse.ArgumentParser:
    """Adds the parser of a command.

    Args:
        commands: Those that it is one of.
        name: What it is called by.
        run: Does it, and gives the exit code; None where commands of its own
            do.
        summary: What it does, among the other commands.
        description: The same in its own help.
        usage: What follows its name: what it needs. By default what argparse
            makes of all that it takes.
        example: A command line, from `keras-posenc` on.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, 80),
        usage=usage and f"%(prog)s {usage}",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if run is not None:
        parser.set_defaults(run=run, parser=parser)
    return parser


def add_options(
    parser: argparse._ActionsContainer, *names: str, **own: Any
) -> None:
    """Adds options of the table, with what a command has of its `own`."""
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **own})


def add_details_or_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the longer forms of a result."""
    forms = parser.add_mutually_exclusive_group()
    add_options(forms, "--details", help=f"print {what}")
    add_options(forms, "--json")


def add_verification(parser: argparse.ArgumentParser) -> None:
    """Adds the signatures of an artifact, and what it is verified with."""
    # Else oneDNN keeps all memory that it ever had, which is more than the
    # weights. What computes for longer is a sixth faster with that.
    environment = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
    parser.set_defaults(environment=environment)
    for name, given in _VERIFICATION.items():
        parser.add_argument(name, **given)


def option_names(parser: argparse.ArgumentParser) -> dict[str, str]:
    """What a command calls the arguments of Python that it gives on."""
    names = {
        action.dest: action.option_strings[-1]
        for action in parser._actions
        if action.option_strings
    }
    if "out" in names:  # which exports call so
        names["path"] = names["base_path"] = names["out"]
    return names
