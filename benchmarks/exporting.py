"""How long verified exports take, compared with Keras's own, unverified ones.

    python benchmarks/exporting.py                  # all models and formats
    python benchmarks/exporting.py --only LSTM --rounds 3

A first export of a process is measured in processes of its own, one for each
exporter. Later ones take turns in one process. A whole run is kept in
`RESULTS.md` and `results.json`, and takes about ten minutes.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
from _command import Kept, facts, parse
from _report import report

PACKAGES = "tensorflow", "keras", "ai-edge-litert", "tf2onnx", "onnxruntime"

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
                skip_padding=False,  # Keras's ONNX has no branches
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
        check=True,
    )
    return json.loads(process.stdout.splitlines()[-1])


def row(name, kind, rounds):
    """The medians of a model and a format."""
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(measured(name, kind, "ours"))
        theirs.append(measured(name, kind, "theirs"))
    found = {
        "first": (ours, "first"),
        "Keras's first": (theirs, "first"),
        "later": (ours, "ours"),
        "Keras's later": (ours, "theirs"),
    }
    return {
        "work": name,
        "format": kind,
        **{
            what: statistics.median(each[key] for each in runs)
            for what, (runs, key) in found.items()
        },
    }


def main():
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*json.loads(sys.argv[2]))))
        return
    options = parse(__doc__, MODELS, rounds=1, peers=())
    kept = Kept("exporting", options)
    cells = [
        (name, kind)
        for name in MODELS
        for kind in FORMATS
        if options.only in name
    ]
    rows = []
    with kept.progress as progress:
        for cell in progress.track(cells):
            try:
                found = kept.once(", ".join(cell), row, *cell, options.rounds)
                rows.append(found)
            except subprocess.CalledProcessError:
                print(*cell, "failed", file=sys.stderr)
    found = {"machine": facts(options, PACKAGES), "rows": rows}
    report("exporting", found, options.to)


if __name__ == "__main__":
    main()
