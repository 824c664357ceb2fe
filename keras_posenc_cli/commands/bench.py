"""`keras-posenc bench`: times a LiteRT file on this machine."""

import argparse
import json
from itertools import chain

from keras_posenc_cli import arguments
from keras_posenc_cli.loading import check_exists
from keras_posenc_cli.options import Commands, add_command
from keras_posenc_cli.process import EXIT_OK, UsageError

_UNTIMED = 3  # runs before those that are timed


def add(commands: Commands) -> None:
    numbers = {"type": arguments.lengths, "nargs": "+"}
    add_command(
        commands,
        "bench",
        run,
        ("exported FILE", "the .tflite file", arguments.path),
        (
            "--lengths N",
            "sizes for dynamic dimensions, separated by spaces or commas "
            "(default: 16 64 128 512)",
            {**numbers, "default": [[16, 64, 128, 512]]},
        ),
        (
            "--repeats N",
            "how often each is run (default: %(default)s)",
            {"type": arguments.length, "default": 50},
        ),
        "--json",
        summary="time a LiteRT file on this machine",
        description="Times each signature of a LiteRT file on this machine's "
        "processor, in a process without Keras and TensorFlow.",
        example="bench order.tflite --lengths 64 512",
    )


def run(options: argparse.Namespace) -> int:
    check_exists(options.exported)
    import numpy as np

    from keras_posenc.export import units
    from keras_posenc.export.inspect import inspect_safe, locate
    from keras_posenc.export.worker_client import Limits, run_model
    from keras_posenc.progress import printable

    path, kind = locate(options.exported)
    if kind != "litert":
        raise UsageError(f"'{path}' must be a LiteRT file, and is: {kind}")
    # The needs of runs of any length are not known; the outputs of all come.
    limits = Limits(memory=None, seconds=None, file=2**40, timeout=600)
    count = _UNTIMED + options.repeats
    found = []
    for name, sides in inspect_safe(path).signatures.items():
        shapes = {key: x.shape or () for key, x in sides["inputs"].items()}
        lengths = [*chain.from_iterable(options.lengths)]
        if not any(None in shape[1:] for shape in shapes.values()):
            lengths = lengths[:1]
        for length in lengths:
            known = {
                key: [1 if each is None else each for each in shape[:1]]
                + [length if each is None else each for each in shape[1:]]
                for key, shape in shapes.items()
            }
            dtypes = {each.dtype for each in sides["inputs"].values()}
            if odd := dtypes & {"string", "bfloat16"}:
                raise UsageError(
                    f"bench cannot be used with inputs of {min(odd)}, and "
                    f"'{path}' takes such"
                )
            # 1 is an id or a mask value that every model takes.
            inputs = {
                key: np.ones(shape, sides["inputs"][key].dtype)
                for key, shape in known.items()
            }
            cases = run_model(
                "litert", path, [(name, inputs)] * count, limits, times=1
            )["cases"]
            errors = [each["error"] for each in cases if "error" in each]
            if errors:
                raise RuntimeError(
                    f"The runtime does not run '{name}' with {known}: "
                    f"{errors[0]}"
                )
            first, *times = (each["milliseconds"] for each in cases)
            median, most = np.percentile(times[_UNTIMED - 1 :], [50, 95])
            found.append(
                {
                    "signature": name,
                    "shapes": known,
                    "first_milliseconds": first,
                    "median_milliseconds": median,
                    "p95_milliseconds": most,
                }
            )
    if options.json:
        print(json.dumps({"timings": found}, indent=2))
        return EXIT_OK
    for each in found:
        first, median, most = (
            units.time(each[f"{which}_milliseconds"] / 1e3)
            for which in ("first", "median", "p95")
        )
        shape = (*next(iter(each["shapes"].values()), ()),)
        text = (
            f"{each['signature']}, {shape}: median {median}, 95% of the runs "
            f"within {most}, the first in {first}"
        )
        print(printable(text))
    return EXIT_OK
