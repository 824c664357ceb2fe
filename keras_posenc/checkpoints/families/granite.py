"""Granite: Llama with four factors, which become parts of its weights."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Llama


class Granite(Llama):
    """[IBM, 2024](https://arxiv.org/abs/2407.13739): depth scaling by muP."""

    types = ("granite",)

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        embedding, residual, query, logits = (
            config.positive(key, 1.0)
            for key in (
                "embedding_multiplier",
                "residual_multiplier",
                "attention_multiplier",
                "logits_scaling",
            )
        )
        is_tied = options.get("embeddings") == "tied"  # which are scaled
        return {
            **super().said(config, options),
            "embedding_scale": embedding,
            "output_scale": 1 / logits / (embedding if is_tied else 1),
            "factors": {
                "query": query * options["attention"].head_dim ** 0.5,
                "attention_output": residual,
                "feed_forward_output": residual,
            },
        }
