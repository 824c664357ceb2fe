"""Fine-tunes an encoder to tell which package a docstring comes from.

    python examples/fine_tuning.py --model all-MiniLM-L6-v2 [--out FOLDER]

`--model` is a local folder of an encoder of sentences, which
`kp.load_hugging_face` loads. The docstrings are those of the best documented
packages of the standard library, without their names. A function that is held
out is so under that name wherever it stands: "close" is learned from
everywhere, or nowhere.

Trained are LoRA's small matrices beside the projections, and a classifier
behind the pooling. It begins as the nearest mean of each package's vectors,
which needs no training; the report says how much better it becomes. Padding is
left out of the computation, as encoders do by themselves (`skip_padding`), and
on a GPU, which has units for it, it trains in mixed precision.

The classifier is then written in float32, with LoRA's part added to the
kernels, as a `.keras` file, a verified SavedModel with its labels, and a LiteRT
file for MediaPipe's text classifier. Needs
`pip install 'keras-posenc[checkpoints,mediapipe]'`.
"""

import argparse
import collections
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from standard_library import Docstring, docstrings

LENGTH = 48  # ids of a text: what a longer one says after them is not read
SHARPNESS = 20.0  # of the nearest mean: what a cosine is multiplied by
HELD_OUT = 5  # of so many names one


def main() -> int:
    options = parse_arguments()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    run(options)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--model", type=Path, required=True, help="the folder of an encoder"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="where exports go"
    )
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument(
        "--texts", type=int, default=200, help="of a class, at most"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rank", type=int, default=8, help="of LoRA")
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dtype", help="policy of training; by default what is fast here"
    )
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    import keras
    from rich.console import Console

    console = Console()
    began = time.perf_counter()
    keras.utils.set_random_seed(options.seed)
    labels, training, held_out = split(docstrings(), options)
    console.print(
        f"{len(training)} docstrings of {len(labels)} packages to learn from, "
        f"{len(held_out)} held out."
    )
    dtype = options.dtype or ("mixed_bfloat16" if has_gpu() else "float32")
    console.print(f"Training in {dtype}.")
    model = classifier(options.model, labels, dtype)
    set_to_means(model, training, labels)
    before = accuracy(model, held_out, labels)
    seconds = train(model, training, labels, options)
    tuned = classifier(options.model, labels)
    with tempfile.TemporaryDirectory() as folder:
        # The sums, which fit a model in float32 and without LoRA.
        model.save_weights(Path(folder) / "model.weights.h5")
        tuned.load_weights(Path(folder) / "model.weights.h5")
    after = accuracy(tuned, held_out, labels)
    console.print(
        f"Of those held out, {before:.1%} are right by the nearest mean, and "
        f"{after:.1%} after {seconds:.0f} s of training."
    )
    deliver(tuned, held_out, labels, options.out)
    console.print(f"Done in {time.perf_counter() - began:.0f} s.")


def split(
    found: Sequence[Docstring], options: argparse.Namespace
) -> tuple[list[str], list[Docstring], list[Docstring]]:
    """The packages, docstrings to learn from, and docstrings to be asked."""
    rng = np.random.default_rng(options.seed)
    by_package = collections.defaultdict(list)
    for each in found:
        by_package[package(each)].append(each)
    most = sorted(by_package, key=lambda name: -len(by_package[name]))
    labels = sorted(most[: options.classes])
    training, held_out = [], []
    for label in labels:
        of_label = by_package[label]
        for i in rng.permutation(len(of_label))[: options.texts]:
            name = of_label[i].name.rpartition(".")[2]
            is_held_out = zlib.crc32(name.encode()) % HELD_OUT == 0
            (held_out if is_held_out else training).append(of_label[i])
    return labels, training, held_out


def package(found: Docstring) -> str:
    return found.module.partition(".")[0]


def has_gpu() -> bool:
    import keras

    return bool(keras.distribution.list_devices("gpu"))


def classifier(folder: Path, labels: list[str], dtype: Any = None) -> Any:
    """The encoder, and behind it scores of the labels; it takes strings."""
    import keras

    import keras_posenc as kp

    loaded = kp.load_hugging_face(folder, dtype=dtype)
    tokenizer, *others = loaded.layers
    short = {**tokenizer.get_config(), "max_length": LENGTH}
    return kp.PretrainedModel(
        [
            keras.Input((), dtype="string", name="text"),
            type(tokenizer).from_config(short),
            *others,
            keras.layers.Dense(
                len(labels),
                activation="softmax",
                dtype="float32",
                name="scores",
            ),
        ],
        labels=labels,
        origin=loaded.origin,
        name="packages",
    )


def as_arrays(
    found: Sequence[Docstring], labels: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    texts = np.array([each.text for each in found], dtype=object)
    return texts, np.array([labels.index(package(each)) for each in found])


def set_to_means(
    model: Any, training: Sequence[Docstring], labels: list[str]
) -> None:
    """Lets the classifier choose the nearest mean of a package's vectors."""
    import keras

    texts, truth = as_arrays(training, labels)
    encoder = keras.Sequential([model.inputs[0], *model.layers[:-1]])
    vectors = encoder.predict(texts, batch_size=64, verbose=0)
    means = np.stack(
        [vectors[truth == i].mean(axis=0) for i in range(len(labels))], axis=1
    )
    means /= np.linalg.norm(means, axis=0)
    model.layers[-1].set_weights([SHARPNESS * means, np.zeros(len(labels))])


def accuracy(
    model: Any, held_out: Sequence[Docstring], labels: list[str]
) -> float:
    texts, truth = as_arrays(held_out, labels)
    scores = model.predict(texts, batch_size=64, verbose=0)
    return float(np.mean(scores.argmax(axis=1) == truth))


def train(
    model: Any,
    training: Sequence[Docstring],
    labels: list[str],
    options: argparse.Namespace,
) -> float:
    """Trains; how many seconds that took."""
    import keras

    import keras_posenc as kp

    kp.training.enable_lora(model.encoder, rank=options.rank)
    texts, truth = as_arrays(training, labels)
    steps = options.epochs * -(-len(texts) // 32)
    rate = keras.optimizers.schedules.CosineDecay(
        options.rate / 10,
        steps - steps // 10,
        warmup_target=options.rate,
        warmup_steps=steps // 10,
    )
    model.compile(
        keras.optimizers.Adam(rate, clipnorm=1.0),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    began = time.perf_counter()
    model.fit(texts, truth, batch_size=32, epochs=options.epochs, verbose=2)
    return time.perf_counter() - began


def deliver(
    model: Any, held_out: Sequence[Docstring], labels: list[str], out: Path
) -> None:
    """Writes the files, and what they say of three texts."""
    import keras_posenc as kp

    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "packages.keras")
    texts, _ = as_arrays(held_out, labels)
    samples = texts[:16]
    print(
        kp.export_saved_model(
            model,
            out / "packages",
            labels=labels,
            batching=True,
            samples=samples,
        ),
        kp.export_litert(
            model,
            out / "packages.tflite",
            task="text_classifier",
            labels=labels,
            samples=samples,
        ),
        sep="\n",
    )
    rows = model.predict(texts[:3], verbose=0)
    for each, scores in zip(held_out, rows, strict=False):
        print(f"{each.name}: {labels[scores.argmax()]} ({scores.max():.2f})")


if __name__ == "__main__":
    sys.exit(main())
