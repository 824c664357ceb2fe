"""Runs a folder in transformers or sentence-transformers, without Keras."""

import sys
from typing import Any

import numpy as np


def _transformers(folder: str, inputs: dict[str, np.ndarray]) -> Any:
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, (config.architectures or ["AutoModel"])[0])
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    tensors = {
        name: torch.tensor(each if "ids" not in name else each.astype("int64"))
        for name, each in inputs.items()
    }
    found = model(**tensors)
    return found.logits if "logits" in found else found.last_hidden_state


def _sentence_transformers(folder: str, inputs: dict[str, np.ndarray]) -> Any:
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    return model.encode(inputs["texts"].tolist(), convert_to_tensor=True)


def _main(kind: str, folder: str, inputs: str, answer: str) -> None:
    with np.load(inputs) as arrays:
        given = dict(arrays)
    run = {
        "transformers": _transformers,
        "sentence_transformers": _sentence_transformers,
    }[kind]
    import torch

    with torch.no_grad():
        np.save(answer, run(folder, given).float().numpy())


if __name__ == "__main__":
    _main(*sys.argv[1:])
