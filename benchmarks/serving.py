"""What an export for a server costs, beside plain Keras's own, and a request.

    python benchmarks/serving.py

Everything in one run, in turns, and as ratios: a busy machine slows both
sides. Needs gcc: cold loads are those of a C program, tests/c/serve.c.
"""

import functools
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _contest import take_turns

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

SOURCE = Path(__file__).parents[1] / "tests" / "c" / "serve.c"
SENTENCE = "the student who failed the exam received a warning last friday"
LOADS, ROUNDS = 9, 100


def vocabulary():
    words = dict.fromkeys(SENTENCE.split())
    letters = "abcdefghijklmnopqrstuvwxyz"
    for size in (1, 2, 3):
        for letters_of_one in itertools.product(letters, repeat=size):
            words["".join(letters_of_one)] = None
            words["##" + "".join(letters_of_one)] = None
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *list(words)[:7996]]


def build():
    import keras

    import keras_posenc as kp

    keras.utils.set_random_seed(0)
    tokenizer = kp.WordpieceTokenizer(vocabulary())
    return keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            tokenizer,
            kp.TransformerEncoderModel(
                tokenizer.vocabulary_size(),
                d_model=256,
                num_layers=10,
                num_heads=4,
                intermediate_dim=1024,
            ),
            kp.Pooling1D("mean"),
            keras.layers.Dense(2, activation="softmax", name="scores"),
        ]
    )


def compile_program(folder):
    import tensorflow as tf

    tensorflow = Path(tf.__file__).parent
    program = folder / "serve"
    subprocess.run(
        [
            *(shutil.which("gcc"), "-std=c11", "-O2", SOURCE, "-o", program),
            *("-isystem", tensorflow / "include"),
            *(f"-L{tensorflow}", f"-Wl,-rpath,{tensorflow}"),
            *("-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"),
        ],
        check=True,
    )
    return program


def operator_libraries():
    import tensorflow_text

    folder = Path(tensorflow_text.__file__).parent / "python" / "ops"
    return sorted(folder.glob("_*.so"))


def load_seconds(program, folder, records, libraries):
    """A cold load, as TensorFlow's loader itself times it."""
    process = subprocess.run(
        [program, folder, records, *libraries],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
    )
    (found,) = re.findall(r"OK\. Took (\d+) micro", process.stderr)
    return int(found) / 1e6


def size(folder):
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file()
    )


def main():
    with tempfile.TemporaryDirectory() as name:
        exports(Path(name))
    return 0


def exports(folder):
    """The folder, a cold load, and a request of a string."""
    import numpy as np
    import tensorflow as tf

    import keras_posenc as kp

    model = build()
    weights = 4 * model.count_params()
    words = sum(len(word.encode()) + 1 for word in vocabulary())
    began = time.perf_counter()
    ours = kp.export_saved_model(model, folder / "ours", verbose=False).path
    seconds = time.perf_counter() - began
    bound = 1.1 * weights + words + 2e6
    print(f"model: {model.count_params() / 1e6:.1f} M parameters")
    print(f"export with verification: {seconds:.1f} s (promised: 15)")
    print(
        f"folder: {size(ours) / 1e6:.1f} MB, weights {weights / 1e6:.1f} "
        f"MB: {size(ours) / bound:.2f} of 1.1 x weights + vocabulary + 2 MB"
    )
    plain = folder / "plain"
    model.export(plain, verbose=False)
    print(f"folder of plain Keras: {size(plain) / 1e6:.1f} MB")
    program, libraries = compile_program(folder), operator_libraries()
    records = folder / "records"
    records.write_bytes(b"")
    loads = {ours: [], plain: []}
    for _ in range(LOADS):
        for path, found in loads.items():
            found.append(load_seconds(program, path, records, libraries))
    # The fastest: what else the machine does only adds to a load.
    fastest = [min(found) for found in loads.values()]
    print(
        f"cold load in C, two signatures: {fastest[0] * 1e3:.0f} ms, "
        f"plain Keras, one: {fastest[1] * 1e3:.0f} ms: "
        f"{fastest[0] / fastest[1]:.2f} x (promised: 1.2)"
    )
    signatures = tf.saved_model.load(ours).signatures
    ids = np.asarray(model.layers[0](tf.constant([SENTENCE])))
    requests = {
        "serving_default": {"text": tf.constant([SENTENCE])},
        "from_ids": {
            "ids": tf.constant(ids),
            "lengths": tf.constant([ids.shape[1]]),
        },
    }
    strings, numbers = take_turns(
        {
            name: functools.partial(signatures[name], **inputs)
            for name, inputs in requests.items()
        },
        ROUNDS,
    ).values()
    print(
        f"one sentence of {ids.shape[1]} ids: strings "
        f"{strings:.2f} ms, ids {numbers:.2f} ms: "
        f"{strings / numbers:.3f} x (promised: 1.15)"
    )


if __name__ == "__main__":
    sys.exit(main())
