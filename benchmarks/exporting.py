"""How long verified exports take, compared with Keras's own, unverified ones.

    python benchmarks/exporting.py                  # all models and formats
    python benchmarks/exporting.py --models LSTM --rounds 3

A first export of a process is measured in processes of its own, one for each
exporter. Later ones take turns in one process. Printed are medians of rounds in
seconds, and their ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# The name that `Model.export` has for a format, and the file's ending.
FORMATS = {
    "SavedModel": ("tf_saved_model", ""),
    "LiteRT": ("litert", ".tflite"),
    "ONNX": ("onnx", ".onnx"),
}
TURNS = 3


def image_model(name):
    """A model of `keras.applications` for images of 224 x 224."""
    import keras

    return getattr(keras.applications, name)(
        weights=None, input_shape=(224, 224, 3)
    )


def lstm():
    import keras

    return keras.Sequential(
        [
            keras.Input((24, 6)),
            keras.layers.LSTM(32),
            keras.layers.Dense(3),
        ]
    )


def encoder(vocabulary, width, layers, heads):
    import keras

    import keras_posenc as kp

    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32", name="ids"),
            kp.TransformerEncoderModel(
                vocabulary,
                d_model=width,
                num_layers=layers,
                num_heads=heads,
                intermediate_dim=4 * width,
            ),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


MODELS = {
    "LSTM": lstm,
    "MobileNetV2": lambda: image_model("MobileNetV2"),
    "EfficientNetB0": lambda: image_model("EfficientNetB0"),
    "ResNet50": lambda: image_model("ResNet50"),
    "BERT-base": lambda: encoder(30_522, 768, 12, 12),
    "two blocks of 64": lambda: encoder(1_000, 64, 2, 4),
}


def measure(name, kind, who):
    """Seconds of a first export by one of both, and of later ones by both."""
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    model(keras.ops.ones([size or 1 for size in model.inputs[0].shape]))
    theirs, ending = FORMATS[kind]
    ours = getattr(
        kp,
        {
            "SavedModel": "export_saved_model",
            "LiteRT": "export_litert",
            "ONNX": "export_onnx",
        }[kind],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)

        def run(exporter):
            began = time.perf_counter()
            if exporter == "ours":
                ours(model, path / f"ours{ending}", verbose=False)
            else:
                model.export(
                    path / f"theirs{ending}", format=theirs, verbose=False
                )
            return time.perf_counter() - began

        first = run(who)
        later = {"ours": [], "theirs": []}
        if who == "ours":
            run("theirs")  # its first does not count either
            for _ in range(TURNS):
                for exporter, found in later.items():
                    found.append(run(exporter))
    return {
        "first": first,
        **{
            exporter: statistics.median(each)
            for exporter, each in later.items()
            if each
        },
    }


def measured(*arguments):
    process = subprocess.run(
        [sys.executable, __file__, "--measure", json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode:
        return None
    return json.loads(process.stdout.splitlines()[-1])


def rows(models, formats, rounds):
    """Yields a line of the table for each model and format."""
    for name in models:
        for kind in formats:
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(measured(name, kind, "ours"))
                theirs.append(measured(name, kind, "theirs"))
            if None in ours or None in theirs:
                yield f"| {name} | {kind} | failed | | | | | |"
                continue
            first, keras_first, later, keras_later = (
                statistics.median(each[key] for each in found)
                for found, key in (
                    (ours, "first"),
                    (theirs, "first"),
                    (ours, "ours"),
                    (ours, "theirs"),
                )
            )
            yield (
                f"| {name} | {kind} | {first:.1f} | {keras_first:.1f} | "
                f"{(first - 2) / keras_first:.2f} | {later:.1f} | "
                f"{keras_later:.1f} | {later / keras_later:.2f} |"
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=[*MODELS])
    parser.add_argument("--formats", nargs="+", default=[*FORMATS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*json.loads(options.measure))))
        return 0
    print(
        "| model | format | first, s | Keras's, s | (first - 2 s) / Keras's | "
        "later, s | Keras's, s | ratio |\n| --- | --- |" + " ---: |" * 6
    )
    for line in rows(options.models, options.formats, options.rounds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
