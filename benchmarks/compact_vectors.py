"""Measures what shorter vectors keep of a search.

    python benchmarks/compact_vectors.py --model all-MiniLM-L6-v2

The texts are the first paragraphs of the docstrings in the standard library.
500 of them are queries, each among all others. For each kind of vector: its
bytes, and recall@10, the share of the ten nearest texts by float32 vectors that
are among its ten nearest. Integers are compared by their cosine, bits by how
many differ; of ties the earlier text counts. `--model` is the folder of an
encoder of sentences, which `kp.load_hugging_face` loads. Needs
`pip install 'keras-posenc[checkpoints]'`; with 9 000 texts and all-MiniLM-L6-v2
it takes some minutes on two cores.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from standard_library import docstrings, summary

NEAREST, QUERIES, RESCORED = 10, 500, 40


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--texts", type=int, help="how many; all by default")
    options = parser.parse_args()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras_posenc as kp

    texts = sorted({summary(each.text) for each in docstrings()})
    np.random.default_rng(0).shuffle(texts)
    texts = sorted(texts[: options.texts], key=len)  # of like lengths together
    model = kp.load_hugging_face(options.model, name="encoder")
    own = model.predict(texts, batch_size=64)
    rng = np.random.default_rng(1)
    queries = rng.choice(len(texts), min(QUERIES, len(texts)), replace=False)
    wanted = nearest(own[queries] @ own.T, queries)
    width = own.shape[1]
    print(f"{len(texts)} texts, {len(queries)} queries")
    kinds = [("float32", 4 * width, own @ own[queries].T)]
    for dim in (256, 128, 64):
        cut = unit(own[:, :dim])
        kinds.append((f"float32, {dim} numbers", 4 * dim, cut @ cut[queries].T))
    rounded = np.array(kp.Int8Quantization()(own), "float32")
    kinds.append(("int8", width, unit(rounded) @ unit(rounded[queries]).T))
    short = np.array(kp.Int8Quantization()(own[:, :256]), "float32")
    kinds.append(
        ("int8, 256 numbers", 256, unit(short) @ unit(short[queries]).T)
    )
    bits = 2.0 * np.unpackbits(np.array(kp.BinaryQuantization()(own)), axis=-1)
    signs = (bits - 1)[:, :width].astype("float32")
    alike = signs @ signs[queries].T
    kinds.append(("binary", width // 8, alike))
    # The index is of bits, and the query chooses among the nearest by floats.
    kinds.append(
        (
            f"binary, {RESCORED} nearest sorted by the query's float32",
            width // 8,
            rescored(alike, signs @ own[queries].T, queries),
        )
    )
    kinds.append(
        (
            f"binary, {RESCORED} nearest sorted by float32 vectors",
            width // 8,
            rescored(alike, own @ own[queries].T, queries),
        )
    )
    for name, size, scores in kinds:
        found = nearest(scores.T, queries)
        shares = [
            len({*one} & {*other}) / NEAREST
            for one, other in zip(wanted, found, strict=True)
        ]
        print(f"| {name} | {size:,} | {np.mean(shares):.3f} |")


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def nearest(scores: np.ndarray, queries: Any, count: int = NEAREST) -> Any:
    """The places of the highest scores of each query, without itself."""
    scores = np.array(scores)
    scores[np.arange(len(queries)), queries] = -np.inf
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def rescored(alike: Any, scores: Any, queries: Any) -> np.ndarray:
    """The scores of the nearest, and nothing of the others."""
    kept = np.full_like(scores, -np.inf)
    places = nearest(alike.T, queries, RESCORED).T
    np.put_along_axis(
        kept, places, np.take_along_axis(scores, places, axis=0), axis=0
    )
    return kept


if __name__ == "__main__":
    main()
