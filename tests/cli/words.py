"""All parsers of the command, and the words of its refusals."""

import argparse
import re

from keras_posenc_cli.options import option_names
from keras_posenc_cli.parsing import make_parser

OPTION = r"(?<![\w-])--[a-z][\w-]*"
# Of `hf download`, and of TensorFlow Serving.
OF_OTHERS = ("--local-dir", "--batching_parameters_file")


def parsers(parser):
    """Yields the parser, and those of all its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


PARSERS = {parser.prog: parser for parser in parsers(make_parser())}


def check_words(arguments, said):
    """Checks that a message speaks of the command's options, not of Python.

    It may quote what the user gave, and other commands.
    """
    line = " ".join(["keras-posenc", *map(str, arguments)])
    known = {*re.findall(OPTION, line), *OF_OTHERS}
    python, flags = set(), []
    for name, parser in PARSERS.items():
        if f"{name} " in line + said:
            known.update(parser._option_string_actions)
        if f"{name} " in line:
            python = {*option_names(parser)}
            actions = parser._option_string_actions.items()
            flags = [option for option, each in actions if each.nargs == 0]
    assert {*re.findall(OPTION, said)} <= known, said
    assert not any(f"{option}=" in said for option in flags), said
    said = re.sub(r"kp\.\w+\(.*\)", "", said)
    code = r"`(\w+)(?:=[^`]*)?`|(?<![\w/'(-])(\w+)=(?!=)"
    named = {name for found in re.findall(code, said) for name in found}
    assert not named & python, said
