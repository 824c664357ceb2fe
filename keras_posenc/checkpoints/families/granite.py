"""Granite: Llama with four factors, which become parts of its weights."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Llama


class Granite(Llama):
    """[IBM, 2024](https://arxiv.org/abs/2407.13739): depth scaling by muP."""

    types = {"granite": "Granite"}

    def own_options(self, config: Config) -> dict[str, Any]:
        options = super().own_options(config)
        self.embedding_scale = config.positive("embedding_multiplier", 1.0)
        self.residual = config.positive("residual_multiplier", 1.0)
        multiplier = config.positive("attention_multiplier", 1.0)
        self.query = multiplier * options["head_dim"] ** 0.5
        self.output_scale = 1 / config.positive("logits_scaling", 1.0)
        if options["embeddings"] == "tied":  # which are scaled
            self.output_scale /= self.embedding_scale
        return options

    def factors(self, block: Any, parts: Any, number: int) -> dict[str, Any]:
        outputs = ("attention_output", "feed_forward_output")
        return {"query": self.query, **dict.fromkeys(outputs, self.residual)}
