"""`keras-posenc compare`: each kind of positional encoding, in numbers."""

import argparse
import json

from keras_posenc_cli import arguments
from keras_posenc_cli.options import Commands, add_command, add_options
from keras_posenc_cli.process import EXIT_OK


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "compare",
        run,
        summary="compare the kinds of positional encodings, in numbers",
        description="Prints distances, norms and shift errors of each kind of "
        "positional encoding; of learned ones before training.",
        usage="[option ...]",
        example="keras-posenc compare --length 512",
    )
    parser.add_argument(
        "--length",
        type=arguments.length,
        default=128,
        metavar="N",
        help="how many positions (default: %(default)s)",
    )
    parser.add_argument(
        "--dim",
        type=arguments.length,
        default=64,
        metavar="N",
        help="width of encodings, and of a head (default: %(default)s)",
    )
    add_options(parser, "--json")


def run(options: argparse.Namespace) -> int:
    from keras_posenc.progress import progress

    with progress(True) as step:
        step("Loading Keras")
        import keras

        from keras_posenc import analysis

    keras.utils.set_random_seed(0)  # for those with random weights
    found = analysis.compare(options.length, options.dim)
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return EXIT_OK
