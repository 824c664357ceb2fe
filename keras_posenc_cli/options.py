"""Parsers of commands, and the options that several commands have."""

import argparse
import re
import textwrap
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from keras_posenc_cli import arguments

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# Our formats by other names.
_FORMATS = {
    **dict.fromkeys(("tflite", "lite"), "litert"),
    **dict.fromkeys(("savedmodel", "saved_model"), "saved-model"),
}


class Parser(argparse.ArgumentParser):
    """A parser that names the format that another name means."""

    def error(self, message: str) -> NoReturn:
        found = re.search(r"invalid choice: '(\w+)'", message)
        meant = _FORMATS.get(found[1]) if found else None
        if meant and f"'{meant}'" in message:  # one of the choices
            message += f". Did you mean {meant}?"
        super().error(message)


# The arguments of `add_argument`, by option.
_SHARED: dict[str, dict[str, Any]] = {
    "model": {
        "type": arguments.path,
        "metavar": "MODEL.keras",
        "help": "file of model.save(), or a Hugging Face checkpoint",
    },
    "exported": {
        "type": arguments.path,
        "metavar": "EXPORTED_MODEL",
        "help": "SavedModel folder, folder of its versions, .tflite or .onnx "
        "file",
    },
    "--out": {"type": arguments.path},
    "--signature": {
        "metavar": "NAME",
        "help": "signature to run (default: serving_default)",
    },
    "--labels": {"type": arguments.labels, "metavar": "A,B|FILE"},
    "--limit": {
        "dest": "limits",
        "type": arguments.limit,
        "action": arguments.ByName,
        "metavar": "NAME=X",
        "help": "quantized: what it may lose: sqnr=20, agreement=0.9, "
        "cosine=0.9, kl=0.2 or perplexity=1.2; may be repeated",
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
        "help": "an operator that may do more than compute; repeatable",
    },
    "--no-verify": {"action": "store_true"},
    "--details": {"action": "store_true"},
    "--json": {"action": "store_true", "help": "print the result as JSON"},
}
# Signatures of an exported model, and inputs of its verification.
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
        "help": "largest difference allowed, if not quantized (default: 1e-5)",
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
        commands: The commands to add it to.
        name: Its name.
        run: Runs it, and returns the exit code; None if it has commands of
            its own.
        summary: What it does, in the list of commands.
        description: What it does, in its own help.
        usage: Its arguments, after its name. By default argparse's list.
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
    """Adds options of the table, changed by those in `own`."""
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **own})


def add_details_or_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds options for longer forms of a result."""
    forms = parser.add_mutually_exclusive_group()
    add_options(forms, "--details", help=f"print {what}")
    add_options(forms, "--json")


def add_verification(parser: argparse.ArgumentParser) -> None:
    """Adds options for signatures of a file, and for its verification."""
    # Without this, oneDNN keeps all memory that it ever used: more than the
    # weights. Long computations are a sixth faster with it.
    environment = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
    parser.set_defaults(environment=environment)
    for name, given in _VERIFICATION.items():
        parser.add_argument(name, **given)


def option_names(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Returns the command's names of arguments that it passes to Python."""
    names = {
        action.dest: action.option_strings[-1]
        for action in parser._actions
        if action.option_strings
    }
    if "out" in names:  # exports use it for their path
        names["path"] = names["base_path"] = names["out"]
    return names
