"""ViT: images as patches, after a class token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.checkpoints.bicubic import resized
from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import (
    ACTIVATIONS,
    SIZES,
    Family,
    Parts,
    said_sizes,
)
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)


class ViT(Family):
    """[Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929).

    Attributes:
        class_tokens: The tensors of the tokens before the patches.
    """

    types = {"vit": "ViT"}
    prefix = "vit."
    names = {
        "patches": "embeddings.patch_embeddings.projection",
        "class_token": "embeddings.cls_token",
        "position": "embeddings.position_embeddings",
        "query": "encoder.layer.{}.attention.attention.query",
        "key": "encoder.layer.{}.attention.attention.key",
        "value": "encoder.layer.{}.attention.attention.value",
        "attention_output": "encoder.layer.{}.attention.output.dense",
        "attention_norm": "encoder.layer.{}.layernorm_before",
        "intermediate": "encoder.layer.{}.intermediate.dense",
        "feed_forward_output": "encoder.layer.{}.output.dense",
        "feed_forward_norm": "encoder.layer.{}.layernorm_after",
        "final_norm": "layernorm",
    }
    unused: Sequence[str] = (
        r"(\w+\.)?pooler\.dense\.(weight|bias)",
        r"(\w+\.)?embeddings\.mask_token",
    )
    model = VisionTransformerModel
    class_tokens: Sequence[str] = ("class_token",)
    pooling: str | list[str] | None = "first"

    def options(self, config: Config) -> dict[str, Any]:
        # Of the pooler, and of masked image modelling.
        for key in ("encoder_stride", "pooler_act", "pooler_output_size"):
            config.take(key, None)
        return {
            **self.sizes(config),
            "intermediate_dim": config.size("intermediate_size"),
            "norm_epsilon": config.positive("layer_norm_eps", 1e-12),
        }

    def sizes(self, config: Config) -> dict[str, Any]:
        """Returns the options that all descendants of ViT have in common."""
        if not config.expect("qkv_bias", True, False):
            self.without_bias = frozenset({"query", "key", "value"})
        of_ids = ("vocabulary_size", "intermediate_dim")
        self.image_size = config.size("image_size", 224)
        return {
            **said_sizes(config, [n for n in SIZES if n not in of_ids]),
            "image_size": self.image_size,
            "patch_size": config.size("patch_size", 16),
            "num_channels": config.size("num_channels", 3),
            "num_class_tokens": len(self.class_tokens),
            "activation": config.choose("hidden_act", ACTIVATIONS, "gelu"),
            "dropout": config.rate("hidden_dropout_prob", 0.0),
        }

    def fill_patches(self, model: Any, parts: Parts) -> tuple[int, int]:
        """Fills the projection of patches; returns their size and width."""
        projection = model.embedding.projection
        *window, channels, width = projection.kernel.shape
        kernel = parts.take("patches", (width, channels, *window))
        projection.kernel.assign(kernel.transpose(2, 3, 1, 0))
        projection.bias.assign(parts.take("patches", (width,), of="bias"))
        return window[0], width

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        table = model.embedding.embeddings
        size, width = self.fill_patches(model, parts)
        first, grid = len(self.class_tokens), self.image_size // size
        rows = parts.take("position", (1, first + grid**2, width), of=None)[0]
        tokens = [
            row + parts.take(part, (1, 1, width), of=None)[0, 0]
            for row, part in zip(rows, self.class_tokens, strict=False)
        ]
        patches = resized(
            rows[first:].reshape(grid, grid, width),
            *(side // size for side in model.image_size),
        )
        table.assign(np.concatenate([tokens, patches.reshape(-1, width)]))
