"""`keras-posenc bench`: times a LiteRT file or package on this machine."""

import argparse
import json
from itertools import chain

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists
from keras_posenc_cli.options import Commands, add_command, add_options
from keras_posenc_cli.process import EXIT_OK


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "bench",
        run,
        summary="time a LiteRT file or LiteRT-LM package on this machine",
        description="Times a LiteRT file on this machine's processor, each "
        "signature and number of threads in a fresh process; or a .litertlm "
        "package in LiteRT-LM's engine.",
        usage="FILE [option ...]",
        example="keras-posenc bench judge.tflite --lengths 64 512 --threads 2",
    )
    add_options(
        parser, "exported", metavar="FILE", help="the .tflite or .litertlm file"
    )
    parser.add_argument(
        "--signature",
        dest="signatures",
        action="append",
        metavar="NAME",
        help="a signature to time; may be repeated (default: all of them)",
    )
    parser.add_argument(
        "--lengths",
        type=arguments.lengths,
        nargs="+",
        default=[[16, 64, 128, 512]],
        metavar="N",
        help="sizes for dynamic dimensions, or words of a text or tokens of a "
        "prompt of a package, separated by spaces or commas (default: 16 64 "
        "128 512)",
    )
    parser.add_argument(
        "--threads",
        type=arguments.lengths,
        nargs="+",
        metavar="N",
        help="numbers of threads, separated by spaces or commas (default: 1, "
        "and the number of processors, at most 4)",
    )
    parser.add_argument(
        "--repeats",
        type=arguments.length,
        default=50,
        metavar="N",
        help="how often each is run (default: %(default)s)",
    )
    add_options(parser, "--json")


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    import keras_posenc as kp

    found = kp.benchmark_export(
        options.exported,
        signatures=options.signatures,
        lengths=[*chain.from_iterable(options.lengths)],
        threads=options.threads and [*chain.from_iterable(options.threads)],
        repeats=options.repeats,
    )
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return EXIT_OK
