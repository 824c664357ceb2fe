"""Measures what files of an encoder keep of a search.

    python benchmarks/retrieval.py --model all-MiniLM-L6-v2

The texts are the first paragraphs of the docstrings in the standard library;
each is a query among all others. For each file: its size, the largest
difference from the model in Keras, the cosine between the two vectors of a
text, and recall@10: the share of the model's ten nearest texts that are among
the file's. Once the file makes all vectors, and once those of queries alone,
where the model has made those that are searched. `--model` is the folder of an
encoder of sentences, which `kp.load_hugging_face` loads. Needs
`pip install 'keras-posenc[checkpoints,onnx,quantize]'`; with 9 000 texts and
all-MiniLM-L6-v2 it takes some minutes on two cores.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from standard_library import docstrings, summary

NEAREST = 10
Run = Callable[[np.ndarray], list[np.ndarray]]  # from ids to vectors


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
    from rich.console import Console
    from rich.table import Table

    import keras_posenc as kp

    texts = sorted({summary(each.text) for each in docstrings()})
    np.random.default_rng(0).shuffle(texts)
    texts = sorted(texts[: options.texts], key=len)  # of like lengths together
    model = kp.load_hugging_face(options.model, name="encoder")
    own = model.predict(texts, batch_size=64)
    table = Table(
        "",
        "MB",
        "largest difference",
        "cosine, min",
        "median",
        "recall@10",
        "of queries alone",
        title=f"{len(texts)} texts",
    )
    wanted = nearest(own, own)
    with tempfile.TemporaryDirectory() as folder:
        for name, mode in (
            *(("LiteRT", mode) for mode in MODES),
            *(("ONNX", mode) for mode in (None, "int8")),
        ):
            export, load, suffix = KINDS[name]
            path = Path(folder) / f"{mode}.{suffix}"
            options = {"verify": False}
            getattr(kp, export)(model, path, quantization=mode, **options)
            found = vectors(load(path), path.name, model.layers[0], texts)
            cosines = np.sum(found * own, axis=1)
            cosines /= np.linalg.norm(found, axis=1)
            cosines /= np.linalg.norm(own, axis=1)
            table.add_row(
                f"{name}, {mode or 'float32'}",
                f"{path.stat().st_size / 1e6:.1f}",
                f"{np.abs(found - own).max():.1e}",
                f"{cosines.min():.4f}",
                f"{np.median(cosines):.4f}",
                f"{recall(wanted, nearest(found, found)):.4f}",
                f"{recall(wanted, nearest(found, own)):.4f}",
            )
    Console().print(table)


def vectors(
    run: Run, name: str, tokenizer: Any, texts: list[str]
) -> np.ndarray:
    """The vectors that a file makes, one text at a time."""
    from rich.console import Console
    from rich.progress import track

    rows = []
    for text in track(texts, name, console=Console(stderr=True)):
        ids = np.asarray(tokenizer(np.array([text], dtype=object)))
        ((row,),) = run(ids)
        rows.append(row)
    return np.stack(rows)


def litert(path: Path) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    file = Interpreter(str(path), num_threads=os.cpu_count())
    run = file.get_signature_runner("serving_default")
    return lambda ids: [*run(ids=ids).values()]


def onnx(path: Path) -> Run:
    from onnxruntime import InferenceSession

    file = InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda ids: file.run(None, {"ids": ids})


MODES = (None, "float16", "int8-weights", "int8", "int4")
KINDS = {
    "LiteRT": ("export_litert", litert, "tflite"),
    "ONNX": ("export_onnx", onnx, "onnx"),
}


def nearest(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The places of the nearest of the others, for each."""
    scores = queries @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    return np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]


def recall(wanted: np.ndarray, found: np.ndarray) -> float:
    rows = zip(wanted, found, strict=True)
    return float(np.mean([np.isin(*row) for row in rows]))


if __name__ == "__main__":
    main()
