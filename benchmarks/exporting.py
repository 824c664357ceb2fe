"""How long a verified export takes, and what an earlier version took.

    python benchmarks/exporting.py
    python benchmarks/exporting.py --before ../a-checkout-of-772239b

Each round measures every version in a process of its own, in turns; printed
are medians of rounds, and their ratios to the earlier version. A toy model's
SavedModel is also held to what Keras's own `export`, which verifies nothing,
takes in the same process: they take turns there, and medians count.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OWN = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

TOY, KERAS = "toy, SavedModel", "toy, Keras's own, unverified"
TURNS = 9


def toy():
    """Two blocks of width 64."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            kp.TransformerEncoderModel(
                1000,
                d_model=64,
                num_layers=2,
                num_heads=4,
                intermediate_dim=128,
            ),
            kp.MaskedAveragePooling1D(),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


def measure():
    """Seconds of one round, in this process, by what was done."""
    import serving

    import keras_posenc as kp

    found = collections.defaultdict(list)

    def timed(name, function, *arguments):
        began = time.perf_counter()
        result = function(*arguments, verbose=False)
        found[name].append(time.perf_counter() - began)
        return result

    def verify(*arguments, verbose):
        kp.verify(*arguments)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = serving.build()
        size = f"{model.count_params() / 1e6:.1f} M"
        base = folder / "large"
        path = timed(
            f"{size}, first export", kp.export_saved_model, model, base
        ).path
        timed(f"{size}, second export", kp.export_saved_model, model, base)
        timed(f"{size}, verify", verify, model, path)
        model = toy()
        for _ in range(1 + TURNS):  # the first does not count
            timed(TOY, kp.export_saved_model, model, folder / "toy")
            timed(KERAS, model.export, folder / "plain")
            timed("toy, LiteRT", kp.export_litert, model, folder / "a.tflite")
    return {
        name: statistics.median(each[1:] or each)
        for name, each in found.items()
    }


def rounds_of(trees, count):
    """The seconds of every round, by version and by what was done."""
    found = {name: collections.defaultdict(list) for name in trees}
    for index in range(count):
        for name in list(trees)[:: -1 if index % 2 else 1]:
            process = subprocess.run(
                [sys.executable, __file__, "--measure"],
                env={**os.environ, "PYTHONPATH": str(trees[name].resolve())},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            for what, seconds in json.loads(process.stdout).items():
                found[name][what].append(seconds)
    return {
        name: {what: statistics.median(each) for what, each in rows.items()}
        for name, rows in found.items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", type=Path, help="an earlier version's tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--measure", action="store_true", help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return 0
    trees = {"now": OWN}
    if options.before is not None:
        trees["before"] = options.before
    found = rounds_of(trees, options.rounds)
    now = found["now"]
    for what, seconds in now.items():
        line = f"{what}: {seconds:.2f} s"
        if options.before is not None:
            before = found["before"][what]
            line += f", before {before:.2f} s: {seconds / before:.2f} x"
        print(line)
    print(f"{TOY} / {KERAS}: {now[TOY] / now[KERAS]:.2f} x (promised: 1.0)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
