"""Contestants of sentence-transformers, and what they and ours are given.

Only here is sentence-transformers needed. `prepare` reads the folder that the
environment variable `ENCODER` names.
"""

import functools
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _contest import THREADS, Size, Work

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from standard_library import docstrings

TORCH = "sentence-transformers, PyTorch"
TEXTS = "sentence-transformers, texts"
ONNX = "sentence-transformers, ONNX Runtime"
DOCUMENTS = "sentence-transformers, docstrings"
NAMES = TORCH, TEXTS, ONNX, DOCUMENTS

CLS, SEP, FIRST, LAST = 101, 102, 1996, 29000  # BERT's, and common words


def numbers(size: Size) -> Any:
    """Ids of `(batch, seq)`, int32: a start, words, an end, and 0 behind."""
    rng = np.random.default_rng(0)
    ids = rng.integers(FIRST, LAST, (size.batch, size.seq), "int32")
    lengths = np.array(size.lengths or [size.seq] * size.batch)[:, None]
    places = np.arange(size.seq)
    ids = np.where(places < lengths, ids, 0)
    ids[:, 0] = CLS
    return np.where(places == lengths - 1, np.int32(SEP), ids)


def texts(size: Size, vocabulary: list[str]) -> list[str]:
    """Whole words, each of them a token of BERT's."""
    words = [word for word in vocabulary[FIRST:LAST] if word.isalpha()]
    words = [word for word in words if word.isascii()]
    rng = np.random.default_rng(0)
    lengths = size.lengths or [size.seq] * size.batch
    return [
        " ".join(words[i] for i in rng.integers(0, len(words), length - 2))
        for length in lengths
    ]


def documents(size: Size) -> list[str]:
    """As many docstrings of the standard library as the batch says."""
    found = [each.text for each in docstrings()]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order[: size.batch]]


def prepare(name: str, size: Size) -> Work:
    import torch

    folder, model = _load()
    if name == DOCUMENTS:  # in batches of 32, by length
        given = documents(size)
        return lambda: model.encode(given, show_progress_bar=False)
    if name == TEXTS:
        vocabulary = (folder / "vocab.txt").read_text().splitlines()
        given = texts(size, vocabulary)
        return lambda: model.encode(
            given, batch_size=size.batch, show_progress_bar=False
        )
    ids = torch.from_numpy(numbers(size).astype("int64"))
    mask = (ids != 0).long()
    if name == ONNX:
        session = _export()
        fed = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        return lambda: session.run(None, fed)

    def run() -> None:
        with torch.inference_mode():
            model({"input_ids": ids, "attention_mask": mask})

    return run


@functools.cache
def _load() -> tuple[Path, Any]:
    from sentence_transformers import SentenceTransformer

    folder = Path(os.environ["ENCODER"])
    return folder, SentenceTransformer(str(folder), device="cpu").eval()


@functools.cache
def _export() -> Any:
    """The whole of it, pooling and norm too, by PyTorch's own exporter."""
    import onnxruntime
    import torch

    _, model = _load()

    class Vectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any) -> Any:
            given = {"input_ids": ids, "attention_mask": mask}
            return self.model(given)["sentence_embedding"]

    ids = torch.from_numpy(numbers(Size(batch=2, seq=8)).astype("int64"))
    axes = {0: "batch", 1: "seq"}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "theirs.onnx")
        torch.onnx.export(
            Vectors(),
            (ids, torch.ones_like(ids)),
            path,
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes},
            dynamo=False,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        return onnxruntime.InferenceSession(path, options)
