"""Searches the documentation in Python's standard library by meaning.

    python examples/semantic_search.py --model all-MiniLM-L6-v2 \
        --query "run a function in another thread" [--out FOLDER]

`--model` is a local folder of an encoder of sentences, of Hugging Face's or
sentence-transformers', which `kp.load_hugging_face` loads. The first run makes
a vector of each docstring and keeps them in `--index`; a query is a matrix
product with them.

`--out` writes, verified, what others search with: a SavedModel for servers, and
a folder with a page that searches in the browser (MediaPipe's text embedder,
the vectors and the texts). The same query goes to MediaPipe, and the report
says whether it finds the same. Needs
`pip install 'keras-posenc[checkpoints,mediapipe]'`.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from standard_library import Docstring, docstrings, summary

EXPORT = Path(__file__).resolve().parents[1] / "export"
PAGE = (
    "search.html",
    "search.js",
    "normalize.js",
    "style.css",
    "package.json",
    "package-lock.json",
)
BEST = 10
QUERY = "run a function in another thread"


class Index(NamedTuple):
    """Docstrings, and a row of length 1 for each."""

    texts: list[Docstring]
    vectors: np.ndarray  # (texts, dim), float32

    def search(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of the best, the first first, and their scores."""
        scores = self.vectors @ unit(vector)
        best = np.argsort(-scores, kind="stable")[:BEST]
        return best, scores[best]


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
    parser.add_argument("--query", default=QUERY)
    parser.add_argument(
        "--index", type=Path, default=Path("index.npz"), help="of the vectors"
    )
    parser.add_argument("--out", type=Path, help="where exports go, if any")
    parser.add_argument(
        "--texts", type=int, default=None, help="how many; all by default"
    )
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    import keras_posenc as kp

    console = Console()
    model = kp.load_hugging_face(options.model, name="search")
    index = read_or_make(options.index, model, docstrings()[: options.texts])
    best, scores = index.search(embed(model, [options.query])[0])
    table = Table(
        "", "", "", title=f"{options.query} ({len(index.texts)} texts)"
    )
    for place, score in zip(best, scores, strict=True):
        found = index.texts[place]
        table.add_row(f"{score:.3f}", found.name, summary(found.text))
    console.print(table)
    if options.out is not None:
        deliver(console, model, index, options)


def passage(found: Docstring) -> str:
    return f"{found.name}: {found.text}"


def unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def embed(model: Any, texts: Sequence[str]) -> np.ndarray:
    """A vector of length 1, unless it is 0, for each text."""
    # Texts of like length share a batch, and so waste no padding.
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    vectors = np.empty((len(texts), *model.output_shape[1:]), "float32")
    vectors[order] = model.predict(
        [texts[i] for i in order], batch_size=64, verbose=0
    )
    return unit(vectors)


def read_or_make(path: Path, model: Any, texts: list[Docstring]) -> Index:
    """The index in a file, if it is of this model and of these texts."""
    path = path.with_suffix(".npz")  # which `np.savez` would add
    passages = np.array([passage(each) for each in texts])
    # With the digests of the weights the tokenizer, the pooling and all else.
    digest = hashlib.sha256(model.to_json().encode()).hexdigest()
    if path.exists():
        with np.load(path) as kept:
            if kept["model"] == digest and np.array_equal(
                kept["passages"], passages
            ):
                return Index(texts, kept["vectors"])
    vectors = embed(model, passages.tolist())
    np.savez(path, model=digest, passages=passages, vectors=vectors)
    return Index(texts, vectors)


def deliver(
    console: Any, model: Any, index: Index, options: argparse.Namespace
) -> None:
    """Exports, and the same query to them."""
    import keras_posenc as kp

    samples = np.array([options.query], dtype=object)
    served = kp.export_saved_model(
        model, options.out / "search", batching=True, samples=samples
    )
    page = options.out / "page"
    page.mkdir(parents=True, exist_ok=True)
    file = kp.export_litert(
        model, page / "embedder.tflite", task="text_embedder", samples=samples
    )
    write_page(page, model, index)
    print(served, file, sep="\n")
    answers = {}
    if options.query.isascii():
        answers["MediaPipe"] = ask_mediapipe(file.path, options.query)
    else:
        print(
            "Not run: MediaPipe, which lowercases only ASCII letters and "
            "folds no accents. The page folds a query first"
        )
    own, scores = index.search(embed(model, [options.query])[0])
    for name, vector in answers.items():
        best, found = index.search(np.array(vector, "float32"))
        same = "the same" if np.array_equal(best, own) else "not the same"
        worst = np.abs(found - scores).max()
        print(f"{name}: {same} {len(best)}, scores differ by {worst:.1e}")
    print(
        f"The page: cd {page}; npm ci; python -m http.server --bind 127.0.0.1; "
        "then open http://127.0.0.1:8000/search.html"
    )


def write_page(folder: Path, model: Any, index: Index) -> None:
    """The page's files, and the index as it reads it."""
    for name in PAGE:
        shutil.copy(EXPORT / "web" / name, folder)
    described = {
        "normalization": model.layers[0].normalization,
        "strip_accents": model.layers[0].strip_accents,
        "texts": [[each.name, summary(each.text)] for each in index.texts],
    }
    (folder / "index.json").write_text(json.dumps(described))
    index.vectors.astype("<f4").tofile(folder / "index.bin")


def ask_mediapipe(path: Path, query: str) -> list[float]:
    """The vector of a text of ASCII."""
    from mediapipe.tasks.python import text

    with text.TextEmbedder.create_from_model_path(str(path)) as task:
        return task.embed(query).embeddings[0].embedding


if __name__ == "__main__":
    sys.exit(main())
