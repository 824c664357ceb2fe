"""Which positions still work on texts longer than any in training?

    python examples/extrapolation.py [--quick] [--out FOLDER]

The task of `word_order.py`: a sentence, or its own words in another order?
Each scheme learns from sentences of at most 12 words, and is asked about ones
of up to 40, and about texts of 100 and 200 words made of whole sentences.
Several seeds, their mean and standard deviation; one table and one picture.
In full it takes about half an hour on two cores, with `--quick` a minute.
Needs matplotlib: `pip install 'keras-posenc[plot]'`.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from word_order import Sentence, WordEncoder, read_sentences, shuffled

LONGEST = 12  # words of a sentence to learn from
BINS = ((5, 12), (13, 20), (21, 30), (31, 40))
TEXTS = (100, 200)  # words of a text of several sentences
MAX_TOKENS = 1024
WIDTH = 64
KINDS = (
    "none",
    "index",
    "index-normalized",
    "sinusoidal",
    "learned",
    "time",
    "randomized",
    "rotary",
    "alibi",
    "t5",
    "shaw",
    "transformer-xl",
    "kerple",
    "fire",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("extrapolation"), help="a folder"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--epochs", type=int, default=40, metavar="N")
    parser.add_argument("--schemes", nargs="+", choices=KINDS)
    parser.add_argument(
        "--quick", action="store_true", help="three schemes, hardly trained"
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.epochs = 1, 2
        options.schemes = options.schemes or ["none", "sinusoidal", "alibi"]
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    run(options)
    return 0


def run(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.progress import Progress

    import keras_posenc as kp

    data = Data(quick=options.quick)
    tokenizer = kp.WordpieceTokenizer.learn(map(" ".join, data.training), 1000)
    encoder = WordEncoder(tokenizer, data.sentences)
    schemes = options.schemes or list(KINDS)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in schemes}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(schemes) * options.seeds)
        for seed in range(options.seeds):
            for name in schemes:
                progress.update(task, description=f"{name}, seed {seed}")
                model = learn(name, tokenizer, encoder, data, seed, options)
                found[name].append(
                    {
                        bin_: accuracy(model, encoder, texts, seed)
                        for bin_, texts in data.tests.items()
                    }
                )
                progress.advance(task)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "accuracies.json").write_text(json.dumps(found, indent=1))
    show(found, options)


class Data:
    """Sentences to learn from, and texts of each length to be asked about."""

    def __init__(self, quick: bool) -> None:
        rng = np.random.default_rng(0)
        sentences = read_sentences()
        self.sentences = [sentences[i] for i in rng.permutation(len(sentences))]
        count = 16 if quick else 150  # texts of each length
        short = [words for words in self.sentences if len(words) <= LONGEST]
        self.training = short[count:] if not quick else short[count : 4 * count]
        self.tests: dict[str, list[Sentence]] = {}
        unseen = [
            *short[:count],
            *(words for words in self.sentences if len(words) > LONGEST),
        ]
        for low, high in BINS:
            self.tests[f"{low}-{high}"] = [
                words for words in unseen if low <= len(words) <= high
            ][:count]
        for length in TEXTS:
            self.tests[str(length)] = [
                text_of(length, unseen, rng) for _ in range(count // 2)
            ]


def text_of(
    length: int, sentences: list[Sentence], rng: np.random.Generator
) -> Sentence:
    """Whole sentences, one after another, of at least `length` words."""
    words: Sentence = []
    while len(words) < length:
        words = words + sentences[rng.integers(len(sentences))]
    return words


def make_model(name: str, vocabulary_size: int) -> Any:
    import keras

    import keras_posenc as kp
    from keras_posenc import analysis

    ids = keras.Input((None,), dtype="int32", name="ids")
    # Every block begins with a norm of each token, which takes out what was
    # added to all its features alike. So an index has a feature of its own.
    is_index = name.startswith("index")
    x = keras.layers.Embedding(
        vocabulary_size, WIDTH - is_index, mask_zero=True
    )(ids)
    in_attention = None
    if is_index:
        x = kp.positions.IndexEncoding(name != "index", merge_mode="concat")(x)
    elif name == "randomized":
        positions = kp.RandomizedPositions(MAX_TOKENS)(x)
        x = kp.PositionalEncoding()(x, positions=positions)
    elif name != "none":
        scheme = analysis.make_scheme(name, MAX_TOKENS)
        if isinstance(scheme, kp.AttentionPosition):
            in_attention = scheme
        else:
            x = scheme(x)
    x = kp.TransformerEncoder(
        num_layers=2,
        num_heads=4,
        intermediate_dim=128,
        norm="before",
        attention=in_attention,
    )(x)
    x = kp.Pooling1D("mean")(x)
    return keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(x))


def learn(
    name: str,
    tokenizer: Any,
    encoder: WordEncoder,
    data: Data,
    seed: int,
    options: argparse.Namespace,
) -> Any:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    model = make_model(name, tokenizer.vocabulary_size())
    steps = -(-len(data.training) // 32)
    rate = keras.optimizers.schedules.CosineDecay(
        1e-4,
        steps * options.epochs,
        warmup_target=2e-3,
        warmup_steps=2 * steps,
    )
    model.compile(
        keras.optimizers.Adam(rate), "binary_crossentropy", jit_compile=False
    )
    dataset = tf.data.Dataset.from_generator(
        lambda: batches(encoder, data.training, options.epochs, seed),
        output_signature=(
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None, 1), tf.int32),
        ),
    ).prefetch(2)
    model.fit(
        dataset,
        epochs=options.epochs,
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
    )
    return model


def batches(
    encoder: WordEncoder, sentences: list[Sentence], epochs: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of 32 sentences and their shuffles, new ones in every epoch."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(sentences))
        for begin in range(0, len(order), 32):
            real = [sentences[i] for i in order[begin : begin + 32]]
            fake = [shuffled(words, rng) for words in real]
            truth = np.repeat([[1], [0]], len(real), axis=0)
            yield padded(encoder, real + fake), truth


def padded(encoder: WordEncoder, texts: list[Sentence]) -> np.ndarray:
    rows = [encoder(words) for words in texts]
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = values
    return ids


def accuracy(
    model: Any, encoder: WordEncoder, texts: list[Sentence], seed: int
) -> float:
    """Right answers on texts and as many shuffles; chance is one half."""
    rng = np.random.default_rng(seed)
    real = model.predict(padded(encoder, texts), verbose=0)
    fakes = [shuffled(words, rng) for words in texts]
    fake = model.predict(padded(encoder, fakes), verbose=0)
    return float(np.mean(np.concatenate([real > 0.5, fake <= 0.5])))


def show(
    found: dict[str, list[dict[str, float]]], options: argparse.Namespace
) -> None:
    """Prints the table, writes it as Markdown, and draws the picture."""
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Column, Table

    bins = list(next(iter(found.values()))[0])
    heading = ["position", *(f"{bin_} words" for bin_ in bins)]
    table = Table(
        Column(heading[0], no_wrap=True),
        *(Column(name, justify="right") for name in heading[1:]),
        title=f"Accuracy in % (chance: 50), {options.seeds} seeds, learned "
        f"from at most {LONGEST} words",
    )
    lines = ["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|"]
    figure = Figure(figsize=(9, 5), layout="constrained")
    ax = figure.add_subplot(xlabel="length (words)", ylabel="accuracy (%)")
    styles = ("-", "--", ":")
    for index, (name, runs) in enumerate(found.items()):
        values = [[100 * run[bin_] for run in runs] for bin_ in bins]
        means = [statistics.mean(value) for value in values]
        spreads = [statistics.pstdev(value) for value in values]
        cells = [
            f"{mean:.0f} ± {spread:.0f}"
            for mean, spread in zip(means, spreads, strict=True)
        ]
        table.add_row(name, *cells)
        lines.append("| " + " | ".join([name, *cells]) + " |")
        ax.errorbar(
            bins,
            means,
            spreads,
            label=name,
            capsize=2,
            linestyle=styles[index // 10 % 3],
        )
    ax.axhline(50, color="0.8", zorder=0)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
    figure.savefig(options.out / "accuracies.png", dpi=110)
    (options.out / "accuracies.md").write_text(
        "\n".join(lines) + "\n", encoding="utf-8"
    )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print(f"Written: {options.out}/accuracies.md, .json, .png")


if __name__ == "__main__":
    sys.exit(main())
