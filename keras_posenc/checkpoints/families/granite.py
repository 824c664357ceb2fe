"""Granite: Llama with four factors, which become parts of its weights."""

from typing import Any

from keras import ops

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Llama
from keras_posenc.checkpoints.family import Parts


class Granite(Llama):
    """[IBM, 2024](https://arxiv.org/abs/2407.13739): depth scaling by muP."""

    def own_options(self, config: Config) -> dict[str, Any]:
        options = super().own_options(config)
        self.embedding_scale = config.positive("embedding_multiplier", 1.0)
        self.residual = config.positive("residual_multiplier", 1.0)
        multiplier = config.positive("attention_multiplier", 1.0)
        self.query = multiplier * options["head_dim"] ** 0.5
        self.logits = 1 / config.positive("logits_scaling", 1.0)
        if options["embeddings"] == "tied":  # which are scaled
            self.logits /= self.embedding_scale
        return options

    def match(self, model: Any, parts: Any) -> None:
        super().match(model, parts)
        if hasattr(model, "decoder"):
            _scale(model.decoder.final_norm.scale, self.logits)

    def fill_block(self, block: Any, parts: Parts, number: int) -> None:
        super().fill_block(block, parts, number)
        width = block.attention.num_heads * block.attention.head_dim
        _scale(block.attention.query_key_value.kernel, self.query, width)
        for part in (block.attention, block.feed_forward):
            _scale(part.output_projection.kernel, self.residual)


def _scale(weight: Any, factor: float, columns: int | None = None) -> None:
    values = ops.convert_to_numpy(weight).astype("float64")
    values[..., :columns] *= factor
    weight.assign(values)
