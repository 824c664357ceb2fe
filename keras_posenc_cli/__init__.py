"""The command `keras-posenc`: import, export, verify, generate, score.

A separate package, because importing keras_posenc imports Keras and TensorFlow,
which takes seconds: arguments are parsed first, and TensorFlow's logs are
silenced before it is imported.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code.

    Args:
        arguments: The arguments after the command's name. By default those of
            the process, which then ends with this call: once the exit code is
            known, signals to end do not change it.
    """
    try:
        # Imported here, so that Ctrl-C during it shows no traceback either.
        from keras_posenc_cli.parsing import run_command

        return run_command(arguments)
    except KeyboardInterrupt:  # before the command handles signals
        if sys.stderr is not None:
            print("keras-posenc: interrupted by SIGINT", file=sys.stderr)
        return 130
