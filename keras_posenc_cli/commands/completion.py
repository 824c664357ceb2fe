"""`keras-posenc completion`: a completion script for a shell."""

import argparse
from typing import Any

from keras_posenc_cli import arguments
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK


def add(commands: Commands, whole: argparse.ArgumentParser) -> None:
    """Adds the command to the commands of `whole`, which it completes."""
    parser = add_command(
        commands,
        "completion",
        run,
        ("shell SHELL", "bash or zsh", {"choices": ("bash", "zsh")}),
        summary="print a completion script for bash or zsh",
        description="Prints a script that lets a shell complete commands, "
        'options and files. Put eval "$(keras-posenc completion bash)" in '
        "~/.bashrc, or the same with zsh in ~/.zshrc. Needs shtab: pip install "
        "'keras-posenc[completion]'.",
        example="completion bash",
    )
    parser.set_defaults(whole=whole)


def run(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ImportError(
            "Completion needs shtab: pip install 'keras-posenc[completion]'"
        ) from error
    _describe(options.whole, shtab.FILE)
    print(shtab.complete(options.whole, options.shell))
    return EXIT_OK


def _describe(parser: argparse.ArgumentParser, file: Any) -> None:
    """Marks arguments that are files; shortens descriptions to one line."""
    for action in parser._actions:
        if action.type in (arguments.path, arguments.labels):
            action.complete = file  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            for entry in action._choices_actions:
                command = action.choices[entry.dest]
                command.description = entry.help
                _describe(command, file)
