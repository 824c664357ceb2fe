"""The command `keras-posenc`: its parser, and running what was parsed.

Imports no Keras and no TensorFlow, which take seconds: commands import them,
after their arguments have been checked.
"""

import argparse
import functools
import os
from collections.abc import Sequence
from importlib import metadata

from keras_posenc_cli import process
from keras_posenc_cli.commands import (
    bench,
    chat,
    export,
    generate,
    import_,
    inspect,
    score,
    verify,
)
from keras_posenc_cli.options import option_names


def run_command(arguments: Sequence[str] | None) -> int:
    """Runs the command and returns its exit code, as `main` does."""

    def run() -> int:
        options, unknown = make_parser().parse_known_args(arguments)
        if unknown:  # as parse_args, but with the usage of the command
            options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        # All before Keras is imported. Exports need TensorFlow, whatever
        # backend the model was trained on. TensorFlow turns oneDNN off on
        # processors without AVX-512, where products are a third faster with it.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ["KERAS_BACKEND"] = "tensorflow"
        if arguments is None:  # else the process is the caller's
            for name, value in getattr(options, "environment", {}).items():
                os.environ.setdefault(name, value)
        work = functools.partial(options.run, options)
        return process.run_in_order(
            work,
            is_last=arguments is None,
            options=option_names(options.parser),
        )

    return process.run_on_streams(run)


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands; the result's `run` is the chosen."""
    parser = argparse.ArgumentParser(
        prog="keras-posenc",
        description="Keras models as verified SavedModel, LiteRT and ONNX "
        "files.",
        epilog="""\
example:
  keras-posenc export litert order.keras --out order.tflite

exit codes: 0 done; 1 the exported file is wrong, or could not be made; 2 the
arguments are wrong, or a package is missing; 130 interrupted by Ctrl-C; 143
ended by SIGTERM; 129 ended by SIGHUP.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"keras-posenc {metadata.version('keras-posenc')}",
    )
    commands = parser.add_subparsers(
        required=True, title="commands", metavar="COMMAND"
    )
    import_.add(commands)
    export.add(commands)
    verify.add(commands)
    verify.add_diff(commands)
    inspect.add(commands)
    generate.add(commands)
    chat.add(commands)
    score.add(commands)
    bench.add(commands)
    return parser
