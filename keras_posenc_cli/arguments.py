"""What commands share of their arguments: kinds of values, groups of options.

Each kind takes a text, and raises `argparse.ArgumentTypeError`, or
`ValueError`, which argparse explains by the kind's name.
"""

import argparse
import math
import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

Shape = tuple[int | None, ...]

_MOST_OF_LABELS = 10_000_000  # characters

_DTYPES = (
    "bool",
    *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)),
    *("bfloat16", "float16", "float32", "float64"),
    "string",
)


def add_command(
    commands: "Commands",
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


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        type=path,
        metavar="MODEL.keras",
        help="file of model.save(), or a Hugging Face checkpoint",
    )


def add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="module of the model's own layers; may be repeated",
    )


def add_json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON"
    )


def add_details_or_json(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds the longer forms of a result."""
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--details", action="store_true", help=f"print {what}")
    add_json(forms)


def add_allowed_operators(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-op",
        dest="allow_operators",
        action="append",
        default=[],
        metavar="NAME",
        help="an operator to allow that may do more than compute; may be "
        "repeated",
    )


def add_labels(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--labels", type=labels, metavar="A,B|FILE", help=what)


def add_compiled(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--compiled",
        type=sizes,
        nargs="?",
        const=True,
        metavar="NAME=N",
        help=what,
    )


def add_verification(parser: argparse.ArgumentParser) -> None:
    """Adds the signatures of an artifact, and what it is verified with."""
    # Else oneDNN keeps all memory that it ever had, which is more than the
    # weights. What computes for longer is a sixth faster with that.
    environment = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
    parser.set_defaults(environment=environment)
    parser.add_argument(
        "--signature",
        dest="signatures",
        type=signature,
        action=ByName,
        metavar="SPEC",
        help="name of a signature, or with shapes of its inputs, ? any size: "
        "one=ids:1x64,mask:1x?; may be repeated",
    )
    parser.add_argument(
        "--input",
        dest="inputs",
        type=input_spec,
        action=ByName,
        metavar="SPEC",
        help="an input of a subclassed model, or of a Sequential of numbers "
        "without keras.Input: ids:int32:?x?, batch first, ? any size; may be "
        "repeated",
    )
    parser.add_argument(
        "--samples",
        type=path,
        metavar="FILE.npz",
        help="further inputs to verify with, arrays by input name",
    )
    parser.add_argument(
        "--max-length",
        type=length,
        metavar="N",
        help="longest sequence to verify with (default: 512, or the "
        "tokenizer's limit if that is less)",
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        metavar="X",
        help="largest difference that passes (default: 1e-5, and for a "
        "quantized file what its rounding does to the model)",
    )


def add_agreement(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agreement",
        type=share,
        metavar="X",
        help="least share of clearly decided rows that keep their largest "
        "score in a quantized file (default: 0.99)",
    )


def path(text: str) -> Path:
    """A path; a shell leaves `~` in --out=~/models as it is."""
    return Path(os.path.expanduser(text))


def length(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not above 0")
    return value


def ids(text: str) -> list[int]:
    """Ids of tokens, with spaces or commas between."""
    found = [int(part) for part in text.replace(",", " ").split()]
    if not found or not all(0 < each < 2**31 for each in found):
        raise ValueError("ids are integers above 0")
    return found


def lengths(text: str) -> list[int]:
    return [length(part) for part in text.split(",")]


def tolerance(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text} is not a finite number of at least 0"
        )
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return value


# What argparse calls them: "invalid int value".
length.__name__ = lengths.__name__ = "int"
tolerance.__name__ = share.__name__ = "float"


def signature(text: str) -> tuple[str, dict[str, Shape]]:
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


def input_spec(text: str) -> tuple[str, tuple[str, Shape]]:
    found = re.fullmatch(r"([^:]+):([^:]+):((?:\d+|\?)(?:x(?:\d+|\?))*)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME:int32:?x?")
    if found[2] not in _DTYPES:
        raise argparse.ArgumentTypeError(
            f"'{found[2]}' of '{text}' is no dtype. There are: "
            f"{', '.join(_DTYPES)}"
        )
    return found[1], (found[2], _shape(found[3]))


def _shape(text: str) -> Shape:
    return tuple(None if size == "?" else int(size) for size in text.split("x"))


def labels(text: str) -> list[str]:
    file = path(text)
    # A name alone, such as "toxic", may be a label.
    if "," in text or not (file.suffix or file.name != text or file.is_file()):
        return text.split(",")
    try:
        # Some editors begin a file by a mark of its encoding.
        with file.open(encoding="utf-8-sig") as opened:
            content = opened.read(_MOST_OF_LABELS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(
            f"'{text}' cannot be read: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    if len(content) > _MOST_OF_LABELS:  # or it has no end
        raise argparse.ArgumentTypeError(
            f"'{text}' has more than {_MOST_OF_LABELS:,} characters, and must "
            "have one label on each line"
        )
    return content.splitlines()


def sizes(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:  # what stands behind an option without a value
            raise argparse.ArgumentTypeError(
                f"'{item}' is not NAME=N. Without NAME=N the option comes "
                "last, behind the model"
            )
        if name in found:
            raise argparse.ArgumentTypeError(f"'{name}' is given twice")
        try:
            found[name] = [int(number) for number in value.split(":")]
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"'{item}' is not NAME=N"
            ) from error
    return found


def batching(text: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for name, numbers in sizes(text).items():
        is_list = name == "allowed_batch_sizes"
        parameters[name] = numbers if is_list else numbers[0]
        if not is_list and len(numbers) > 1:
            raise argparse.ArgumentTypeError(f"'{name}' is not NAME=N")
    return parameters


class ByName(argparse.Action):
    """An option that may be repeated, with a new name each time."""

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
            parser.error(f"{option_string}: '{name}' is given twice")
        setattr(namespace, self.dest, {**earlier, name: value})
