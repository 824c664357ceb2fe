"""FastEmbed on the same encoder: ONNX Runtime behind its own tokenizer.

Only here are FastEmbed and transformers needed. `prepare` reads the folder that
the environment variable `ENCODER` names.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from _contest import THREADS, Size, Work
from _sentence_transformers import documents

NAME = "FastEmbed, docstrings"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"  # means and norms are its own
FILES = (
    "config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def prepare(name: str, size: Size) -> Work:
    import torch
    from fastembed import TextEmbedding
    from transformers import AutoModel

    source, folder = Path(os.environ["ENCODER"]), Path(tempfile.mkdtemp())
    for name in FILES:
        shutil.copy(source / name, folder)
    model = AutoModel.from_pretrained(source, attn_implementation="eager")
    names = ["input_ids", "attention_mask", "token_type_ids"]

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            return self.model(**dict(zip(names, given, strict=True)))[0]

    ids = torch.ones((2, 8), dtype=torch.int64)
    axes = {0: "batch", 1: "seq"}
    torch.onnx.export(
        Hidden().eval(),
        (ids, ids, 0 * ids),
        folder / "model.onnx",
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes=dict.fromkeys([*names, "last_hidden_state"], axes),
        dynamo=False,
    )
    embedder = TextEmbedding(
        MODEL, specific_model_path=str(folder), threads=THREADS
    )
    given = documents(size)
    return lambda: list(embedder.embed(given, batch_size=32))
