"""The command `keras-posenc`: import, export, verify, generate, score.

Beside the package and not inside it, because importing the package imports
Keras and TensorFlow, which takes seconds: arguments are parsed first, and
TensorFlow's logs are silenced before it is imported.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    Args:
        arguments: Those after the command's name. By default those of the
            process, whose last act this is then: once the code is settled,
            the signals that ask a process to end change it no more.
    """
    try:
        # Here, so that Ctrl-C during these imports shows no traceback either.
        from keras_posenc_cli.parsing import run_command

        return run_command(arguments)
    except KeyboardInterrupt:  # before the command has a handler of its own
        if sys.stderr is not None:
            print("keras-posenc: interrupted by SIGINT", file=sys.stderr)
        return 130
