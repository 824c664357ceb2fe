"""`keras-posenc completion`: what a shell completes the command by."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_posenc_cli import arguments
from keras_posenc_cli.process import EXIT_OK

if TYPE_CHECKING:
    from keras_posenc_cli.arguments import Commands


def add(commands: "Commands", whole: argparse.ArgumentParser) -> None:
    """Adds the command to those of `whole`, which it completes."""
    parser = arguments.add_command(
        commands,
        "completion",
        run,
        summary="print what bash or zsh completes this command by",
        description="Prints a script by which a shell completes commands, "
        "options and files. For bash, put it into "
        "~/.local/share/bash-completion/completions/keras-posenc; for zsh, "
        "into a file _keras-posenc in a folder of $fpath. Needs shtab: pip "
        "install 'keras-posenc[completion]'.",
        usage="SHELL",
        example="keras-posenc completion bash > keras-posenc.bash",
    )
    parser.add_argument(
        "shell",
        choices=("bash", "zsh"),
        metavar="SHELL",
        help="bash or zsh",
    )
    parser.set_defaults(whole=whole)


def run(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ImportError(
            "Completion needs shtab: pip install 'keras-posenc[completion]'"
        ) from error
    for action in _actions(options.whole):
        if action.type in (arguments.path, arguments.labels):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(options.whole, options.shell))
    return EXIT_OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
