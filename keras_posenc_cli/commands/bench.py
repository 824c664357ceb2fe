"""`keras-posenc bench`: times a LiteRT file or package on this machine."""

import argparse
import json
from itertools import chain

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK


def add(commands: Commands) -> None:
    numbers = {"type": arguments.lengths, "nargs": "+"}
    add_command(
        commands,
        "bench",
        run,
        ("exported FILE", "the .tflite or .litertlm file", arguments.path),
        (
            "--signature NAME",
            "a signature to time; may be repeated (default: all of them)",
            {"dest": "signatures", "action": "append"},
        ),
        (
            "--lengths N",
            "sizes for dynamic dimensions, or words of a text or tokens of a "
            "prompt of a package, separated by spaces or commas (default: 16 "
            "64 128 512)",
            {**numbers, "default": [[16, 64, 128, 512]]},
        ),
        (
            "--threads N",
            "numbers of threads, separated by spaces or commas (default: 1, "
            "and the number of processors, at most 4)",
            numbers,
        ),
        (
            "--repeats N",
            "how often each is run (default: %(default)s)",
            {"type": arguments.length, "default": 50},
        ),
        "--json",
        summary="time a LiteRT file or LiteRT-LM package on this machine",
        description="Times a LiteRT file on this machine's processor, each "
        "signature and number of threads in a fresh process; or a .litertlm "
        "package in LiteRT-LM's engine.",
        example="bench order.tflite --lengths 64 512 --threads 2",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    from keras_posenc.export import units
    from keras_posenc.export.benchmark import timings
    from keras_posenc.progress import printable

    found = [
        *timings(
            options.exported,
            options.signatures,
            [*chain.from_iterable(options.lengths)],
            options.threads and [*chain.from_iterable(options.threads)],
            options.repeats,
        )
    ]
    if options.json:
        print(json.dumps({"timings": found}, indent=2))
        return EXIT_OK
    for each in found:
        seconds = each["median_milliseconds"] / 1e3
        shape = (*next(iter(each["shapes"].values()), ()),)
        count = units.count(each["threads"], "thread")
        text = (
            f"{each['signature']}, {shape}, {count}: median "
            f"{units.time(seconds)}, 95% of the runs within "
            f"{units.time(each['p95_milliseconds'] / 1e3)}, loaded in "
            f"{units.time(each['load_seconds'])}, memory "
            f"{units.size(each['peak_bytes'])}"
        )
        if each["tokens"]:
            text += f", {each['tokens'] / seconds:.3g} tokens/s"
        print(printable(text))
    return EXIT_OK
