"""Writes what exports of twelve models in three formats give, to compare trees.

    PYTHONPATH=. python tests/export/golden.py /tmp/now
    PYTHONPATH=../before python tests/export/golden.py /tmp/before
    diff -r /tmp/before /tmp/now

For each model and format that is the report, or the message of its refusal,
and the SHA-256 of a LiteRT file; of the command, its output and exit status.
Times, and sizes of files that hold times, are left out. Run both on one
machine: processors round constants apart.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import keras
import numpy as np
from keras import layers

import keras_posenc as kp
from keras_posenc_cli import main as command

SMALL = {
    "d_model": 8,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 16,
}


def ids():
    return keras.Input((None,), dtype="int32", name="ids")


def encoder():
    x = kp.TransformerEncoderModel(
        20, **SMALL, attention_position="rotary", input_position=None
    )(given := ids())
    x = kp.Pooling1D("mean")(x)
    return keras.Model(given, layers.Dense(2, "softmax", name="scores")(x))


def sequential():
    return keras.Sequential(
        [
            ids(),
            layers.Embedding(20, 8, mask_zero=True),
            kp.PositionalEncoding(),
            kp.Pooling1D("mean"),
        ]
    )


def recurrent():
    x = keras.Input((6, 4), name="x")
    return keras.Model(x, layers.Bidirectional(layers.GRU(3))(x))


def images():
    x = given = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, activation="relu")(x)
    x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(given, layers.Dense(3)(x))


def table():
    a = keras.Input((3,), name="numbers")
    b = keras.Input((1,), dtype="int32", name="kind")
    c = layers.Flatten()(layers.Embedding(5, 2)(b))
    x = layers.Dense(4, "relu")(layers.Concatenate()([a, c]))
    return keras.Model(
        {"numbers": a, "kind": b},
        {"price": layers.Dense(1)(x), "risk": layers.Dense(1, "sigmoid")(x)},
    )


def siamese():
    part = keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(3)])
    a = keras.Input((5,), name="a")
    b = keras.Input((5,), name="b")
    return keras.Model([a, b], layers.Dot(-1)([part(a), part(b)]))


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x):
        return self.dense(x)


def subclass():
    model = Subclass()
    model(np.zeros((2, 4), "float32"))
    return model


def mixed():
    with_policy = {"dtype": "mixed_float16"}
    x = keras.Input((None, 8), name="x")
    y = kp.TransformerEncoder(
        1, num_heads=2, intermediate_dim=16, **with_policy
    )(x)
    return keras.Model(x, y)


def int8():
    model = keras.Sequential(
        [keras.Input((6,), name="x"), layers.Dense(8, "relu"), layers.Dense(2)]
    )
    model.quantize("int8")
    return model


def stateful():
    x = keras.Input(batch_shape=(2, 5, 4), name="x")
    return keras.Model(x, layers.GRU(3, stateful=True)(x))


def generator():
    model = kp.TransformerDecoderModel(9, **SMALL)
    return kp.Generator(model, max_length=4, start_id=2, end_ids=3)


def texts():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"]
    text = keras.Input((), dtype="string", name="text")
    x = kp.WordpieceTokenizer(words, max_length=8)(text)
    x = layers.Embedding(6, 4, mask_zero=True)(x)
    x = kp.Pooling1D("mean")(x)
    return keras.Model(text, layers.Dense(2, "softmax", name="scores")(x))


MODELS = [
    encoder,
    sequential,
    recurrent,
    images,
    table,
    siamese,
    subclass,
    mixed,
    int8,
    stateful,
    generator,
    texts,
]
FORMATS = {
    "saved_model": (kp.export_saved_model, "versions"),
    "litert": (kp.export_litert, "model.tflite"),
    "onnx": (kp.export_onnx, "model.onnx"),
}


def without_times(text):
    """A report's text without what differs from run to run."""
    text = re.sub(r"[\d.,]+ (µs|us|ms|s)\b", "TIME", text)
    text = re.sub(r'("(load_seconds|milliseconds)": )[\d.e-]+', r"\1TIME", text)
    return re.sub(r"(?<=\b)[\d.,]+ (bytes|kB|MB|KiB|MiB)", "SIZE", text)


def export(model, kind, folder):
    """What came of one export and of verifying it again."""
    function, name = FORMATS[kind]
    options = {"max_length": 8, "verbose": False}
    try:
        artifact = function(model, folder / name, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace(str(folder), "")
    found = artifact.report.details()
    if kind == "litert":
        content = artifact.path.read_bytes()
        found += f"\nSHA-256 {hashlib.sha256(content).hexdigest()}"
    again = kp.verify_export(artifact.path, model, max_length=8, verbose=False)
    found += f"\n\nVerified again: {again.passed}\n{again.details()}"
    return without_times(found.replace(str(folder), ""))


def run(line, folder):
    """A command's output and exit status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(line.split())
        except SystemExit as end:
            code = end.code
    found = f"{line}\nexit status {code}\n{out.getvalue()}\n{err.getvalue()}"
    return without_times(found.replace(str(folder), ""))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names of models")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for make in MODELS:
        if make.__name__ not in (options.only or make.__name__).split(","):
            continue
        for kind in FORMATS:
            keras.backend.clear_session()
            keras.utils.set_random_seed(0)
            with tempfile.TemporaryDirectory() as name:
                text = export(make(), kind, Path(name))
            path = options.folder / f"{make.__name__}.{kind}.txt"
            path.write_text(text + "\n", encoding="utf-8")
            print(path.name, text.splitlines()[0][:90], flush=True)
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table().save(folder / "table.keras")
        model = folder / "table.keras"
        lines = [
            f"export saved-model {model} --out {folder}/table",
            f"export litert {model} --out {folder}/table.tflite --json",
            f"export onnx {model} --out {folder}/table.onnx",
            f"verify {folder}/table.onnx {model}",
            f"inspect {folder}/table.tflite",
            f"export litert {model} --out {folder}/table.txt",
        ]
        text = "\n\n".join(run(line, folder) for line in lines)
        content = json.dumps(text).encode()
        (options.folder / "command.txt").write_text(text, encoding="utf-8")
        print("command.txt", hashlib.sha256(content).hexdigest()[:8])


if __name__ == "__main__":
    main()
