"""Fine-tunes an encoder to find the details of what a docstring summarizes.

    python examples/fine_tuning_search.py --model all-MiniLM-L6-v2 [--out demo]

`--model` is a local folder of an encoder of sentences, which
`kp.load_hugging_face` loads. A docstring of the standard library that has more
than one paragraph is a pair: the first is the query, the others are what it
must find among those of all docstrings. One in five names is held out, wherever
it is: "close" is learned from everywhere, or nowhere. So are pairs that share a
text with those held out.

It trains LoRA's small matrices, with the other pairs of a batch as negatives,
for whole vectors and truncated ones, and prints how well the held-out queries
find their texts before and after. The encoder is then written as a `.keras`
file.
Needs `pip install 'keras-posenc[checkpoints]'`.
"""

import argparse
import os
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from standard_library import Docstring, docstrings

LENGTH = 48  # ids of a text: the rest of a longer one is not read
FEWEST_WORDS = 8  # of what is found
HELD_OUT = 5  # one in so many names
METRICS = ("recall@1", "recall@10", "mrr@10", "ndcg@10")


class Search(NamedTuple):
    """Pairs to learn from, and queries with what they must find."""

    training: list[tuple[str, str]]
    queries: list[str]
    relevant: list[set[int]]  # for each query, places in `documents`
    documents: list[str]


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
        "--out", type=Path, default=Path("demo"), help="where the model goes"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--batch", type=int, default=64, help="pairs of a batch"
    )
    parser.add_argument("--rank", type=int, default=8, help="of LoRA")
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument(
        "--dims",
        type=int,
        nargs="+",
        default=[384, 256, 128, 64],
        help="lengths of vectors, the whole one first",
    )
    parser.add_argument(
        "--texts", type=int, help="how many docstrings to read, at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    import keras
    from rich.console import Console

    import keras_posenc as kp

    console = Console()
    keras.utils.set_random_seed(options.seed)
    search = split(docstrings()[: options.texts])
    console.print(
        f"{len(search.training)} pairs to learn from; {len(search.queries)} "
        f"queries held out, which search {len(search.documents)} texts."
    )
    model = kp.load_hugging_face(options.model, max_length=LENGTH)
    before = evaluate(model, search, options.dims)
    seconds = train(model, search.training, options)
    after = evaluate(model, search, options.dims)
    console.print(table(before, after))
    console.print(f"Trained in {seconds:.0f} s of processor time.")
    options.out.mkdir(parents=True, exist_ok=True)
    model.save(options.out / "search.keras")


def split(found: Sequence[Docstring]) -> Search:
    """The pairs to learn from share no text with those held out."""
    pairs = [pair for each in found if (pair := as_pair(each))]
    queries = {query for name, query, _ in pairs if is_held_out(name)}
    kept = {text for _, query, text in pairs if query in queries}
    documents = sorted({text for _, _, text in pairs})
    places = {text: place for place, text in enumerate(documents)}
    relevant: dict[str, set[int]] = {query: set() for query in sorted(queries)}
    training = []
    for _, query, text in pairs:
        if query in queries:
            relevant[query].add(places[text])
        elif text not in kept:
            training.append((query, text))
    return Search(training, [*relevant], [*relevant.values()], documents)


def as_pair(found: Docstring) -> tuple[str, str, str] | None:
    """The name, the first paragraph and the others, if there is enough."""
    first, _, others = found.text.partition("\n\n")
    query, text = " ".join(first.split()), " ".join(others.split())
    if len(text.split()) < FEWEST_WORDS:
        return None
    return found.name.rpartition(".")[2], query, text


def is_held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % HELD_OUT == 0


def evaluate(
    model: Any, search: Search, dims: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Returns the metrics for each length of vectors."""
    import keras_posenc as kp

    queries, documents = (
        model.predict(texts, batch_size=64, verbose=0)
        for texts in (search.queries, search.documents)
    )
    return {
        dim: kp.training.RetrievalEvaluator(
            lambda vectors, dim=dim: vectors[:, :dim],
            queries=queries,
            documents=documents,
            relevant=search.relevant,
        )()
        for dim in dims
    }


def train(
    model: Any, pairs: Sequence[tuple[str, str]], options: argparse.Namespace
) -> float:
    """Trains; returns the seconds of processor time that it took."""
    import keras

    import keras_posenc as kp

    kp.training.enable_lora(model.encoder, rank=options.rank)
    query = keras.Input((), dtype="string", name="query")
    document = keras.Input((), dtype="string", name="document")
    both = keras.ops.stack([model(query), model(document)], axis=1)
    trainer = keras.Model([query, document], both)
    steps = options.epochs * -(-len(pairs) // options.batch)
    rate = keras.optimizers.schedules.CosineDecay(
        options.rate / 10,
        steps - steps // 10,
        warmup_target=options.rate,
        warmup_steps=steps // 10,
    )
    trainer.compile(
        keras.optimizers.Adam(rate, clipnorm=1.0),
        kp.training.MatryoshkaLoss(
            kp.training.ContrastiveLoss(), dims=options.dims
        ),
    )
    queries, texts = (
        np.array(each, "object") for each in zip(*pairs, strict=True)
    )
    # Pairs of the same text are no negatives of each other.
    labels = np.unique(texts, return_inverse=True)[1]
    began = time.process_time()
    trainer.fit(
        [queries, texts],
        labels,
        batch_size=options.batch,
        epochs=options.epochs,
        verbose=2,
    )
    return time.process_time() - began


def table(
    before: dict[int, dict[str, float]], after: dict[int, dict[str, float]]
) -> Any:
    from rich.table import Table

    made = Table("vectors of", *METRICS, title="before → after")
    for dim, values in before.items():
        cells = (f"{values[x]:.3f} → {after[dim][x]:.3f}" for x in METRICS)
        made.add_row(str(dim), *cells)
    return made


if __name__ == "__main__":
    sys.exit(main())
