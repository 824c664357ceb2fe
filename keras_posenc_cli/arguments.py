"""Types of the values of the command's options.

Each is a function of a text that raises `argparse.ArgumentTypeError`, or
`ValueError`, whose message argparse makes from the function's name.
"""

import argparse
import contextlib
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Shape = tuple[int | None, ...]


def path(text: str) -> Path:
    """Returns a path; a shell does not expand `~` in --out=~/models."""
    return Path(os.path.expanduser(text))


def _number(
    kind: type, is_right: Callable[[Any], bool], wrong: str
) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = kind(text)
        if not is_right(value):
            raise argparse.ArgumentTypeError(f"{text} is {wrong}")
        return value

    read.__name__ = kind.__name__
    return read


length = _number(int, lambda x: x >= 1, "not above 0")
seed = _number(int, lambda x: x >= 0, "below 0")
share = _number(float, lambda x: 0 < x <= 1, "not above 0 and at most 1")
tolerance = _number(
    float, lambda x: 0 <= x < math.inf, "not a finite number of at least 0"
)


def ids(text: str) -> list[int]:
    """Returns ids of tokens, separated by spaces or commas."""
    found = [int(part) for part in text.replace(",", " ").split()]
    if not found or not all(0 < each < 2**31 for each in found):
        raise ValueError("ids are integers above 0")
    return found


def lengths(text: str) -> list[int]:
    return [length(part) for part in text.split(",")]


lengths.__name__ = "int"


_LIMITS = "sqnr", "agreement", "cosine", "kl", "perplexity"


def limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    with contextlib.suppress(ValueError):
        if name in _LIMITS:
            return name, float(value)
    raise argparse.ArgumentTypeError(
        f"'{text}' is not NAME=X, with a NAME of {', '.join(_LIMITS)}"
    )


MODES = "float16", "int8", "int8-weights", "int4"
MORE_MODES = *MODES, "int8-static", "auto"


def mode(text: str, modes: Sequence[str] = MODES) -> str:
    """Returns a mode of quantization, or the path of a recipe."""
    file = path(text)
    # Path.is_file raises for names that are too long.
    if text not in modes and not (
        file.suffix == ".json" and os.path.isfile(file)
    ):
        raise argparse.ArgumentTypeError(
            f"'{text}' is none of {', '.join(modes)}, and no .json file"
        )
    return str(file)


def more_modes(text: str) -> str:
    return mode(text, MORE_MODES)


def prompt(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=TEXT")
    return name, value


def signature(text: str) -> tuple[str, dict[str, Shape]]:
    name, _, inputs = text.partition("=")
    shapes = {}
    for item in filter(None, inputs.split(",")):
        found = re.fullmatch(r"([^:]+):((?:\d+|\?)(?:x(?:\d+|\?))*)", item)
        if found is None:
            raise argparse.ArgumentTypeError(f"'{item}' is not INPUT:1x64")
        shapes[found[1]] = _shape(found[2])
    if not re.fullmatch(r"\w+", name) or (inputs == "" and "=" in text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not NAME=INPUT:1x64, with a NAME of letters, digits "
            "and underscores"
        )
    return name, shapes


def _shape(text: str) -> Shape:
    return tuple(None if size == "?" else int(size) for size in text.split("x"))


_MOST_OF_LABELS = 10_000_000


def labels(text: str) -> list[str]:
    file, names = path(text), text.split(",")
    # A name alone, such as "toxic", may be a label.
    if names == [text] and (
        file.suffix or file.name != text or os.path.isfile(file)
    ):
        try:
            # Some editors start a file with a byte order mark.
            with file.open(encoding="utf-8-sig") as opened:
                content = opened.read(_MOST_OF_LABELS + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise argparse.ArgumentTypeError(
                f"'{text}' cannot be read: "
                f"{getattr(error, 'strerror', None) or error}"
            ) from error
        if len(content) > _MOST_OF_LABELS:  # or it has no end, as a device
            raise argparse.ArgumentTypeError(
                f"'{text}' has more than {_MOST_OF_LABELS:,} characters, and "
                "must have one label on each line"
            )
        names = content.splitlines()
    if not (names and all(names)) or len({*names}) < len(names):
        raise argparse.ArgumentTypeError(
            f"a label of '{text:.60}' is empty or given twice"
        )
    return names


def batching(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:  # an argument after an option without a value
            raise argparse.ArgumentTypeError(
                f"'{item}' is not NAME=N. Without NAME=N the option must come "
                "last, after the model"
            )
        if name in found:
            raise argparse.ArgumentTypeError(f"'{name}' is given twice")
        try:
            numbers = [int(number) for number in value.split(":")]
            is_list = name == "allowed_batch_sizes"
            found[name] = numbers if is_list else int(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(
                f"'{item}' is not NAME=N"
            ) from error
    return found


def by_name(kind: Any, dest: str) -> dict[str, Any]:
    """Returns arguments of `add_argument` for one that may be repeated."""
    return {"type": kind, "dest": dest, "action": ByName}


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
