"""Runs a folder in transformers or sentence-transformers, without Keras."""

import sys
from typing import Any

import numpy as np

SENTENCES = "sentence_transformers"


def _transformers(kind: str, folder: str, inputs: dict[str, np.ndarray]) -> Any:
    import torch
    import transformers

    model = getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32
    )
    tensors = {
        name: torch.tensor(each if "ids" not in name else each.astype("int64"))
        for name, each in inputs.items()
    }
    found = model.eval()(**tensors)
    return found.logits if "logits" in found else found.last_hidden_state


def _sentences(folder: str, inputs: dict[str, np.ndarray]) -> Any:
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    return model.encode(inputs["texts"].tolist(), convert_to_tensor=True)


def _main(kind: str, folder: str, inputs: str, answer: str) -> None:
    import torch

    with np.load(inputs) as arrays:
        given = dict(arrays)
    with torch.no_grad():
        found = (
            _sentences(folder, given)
            if kind == SENTENCES
            else _transformers(kind, folder, given)
        )
        np.save(answer, found.float().numpy())


if __name__ == "__main__":
    _main(*sys.argv[1:])
