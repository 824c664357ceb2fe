"""ViT: images as patches, after a class token; and DeiT."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.family import (
    ACTIVATIONS,
    SIZES,
    Family,
    said_sizes,
)
from keras_posenc.checkpoints.parts import Parts
from keras_posenc.transformer.specs import Norm
from keras_posenc.transformer.vision_transformer_model import (
    VisionTransformerModel,
)


class ViT(Family):
    """[Dosovitskiy et al., 2020](https://arxiv.org/abs/2010.11929).

    Attributes:
        class_tokens: The tensors of the tokens before the patches.
    """

    types = ("vit",)
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
    ignored = "encoder_stride pooler_act pooler_output_size"
    model = VisionTransformerModel
    class_tokens: Sequence[str] = ("class_token",)
    pooling: str | list[str] | None = "first"

    def options(self, config: Config) -> dict[str, Any]:
        return {
            **self.sizes(config),
            "intermediate_dim": config.size("intermediate_size"),
            "norm": Norm(
                at="before", epsilon=config.positive("layer_norm_eps", 1e-12)
            ),
        }

    def sizes(self, config: Config) -> dict[str, Any]:
        """Returns the options that all descendants of ViT have in common."""
        of_ids = ("vocabulary_size", "intermediate_dim")
        return {
            **said_sizes(config, [n for n in SIZES if n not in of_ids]),
            "image_size": config.size("image_size", 224),
            "patch_size": config.size("patch_size", 16),
            "num_channels": config.size("num_channels", 3),
            "num_class_tokens": len(self.class_tokens),
            "activation": config.choose("hidden_act", ACTIVATIONS, "gelu"),
            "dropout": config.rate("hidden_dropout_prob", 0.0),
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        if config.expect("qkv_bias", True, False):
            return {}
        return {"without_bias": frozenset({"query", "key", "value"})}

    def fill_patches(self, model: Any, parts: Parts) -> tuple[int, int]:
        """Fills the projection of patches; returns their size and width."""
        projection = model.embedding.projection
        *window, channels, width = projection.kernel.shape
        shape = (width, channels, *window)
        parts.assign(projection.kernel, "patches", shape, axes=(2, 3, 1, 0))
        parts.assign(projection.bias, "patches", (width,), of="bias")
        return window[0], width

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        table = model.embedding.embeddings
        size, width = self.fill_patches(model, parts)
        first = len(self.class_tokens)
        grid = parts.reading.options["image_size"] // size
        tokens = [
            parts.absorbed(part, (1, 1, width), 0.0, of=None)[0, 0]
            for part in self.class_tokens
        ]

        def of_size(rows: np.ndarray) -> np.ndarray:
            patches = resized(
                rows[0, first:].reshape(grid, grid, width),
                *(side // size for side in model.image_size),
            )
            before = rows[0, :first] + np.stack(tokens)
            return np.concatenate([before, patches.reshape(-1, width)])

        shape = 1, first + grid**2, width
        parts.assign(table, "position", shape, of=None, change=of_size)


# Keys's parameter, as in PyTorch and OpenCV: how far values overshoot.
_SHARPNESS = -0.75


def resized(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns a grid of vectors resized by cubic convolution.

    The same as PyTorch's `interpolate` with `mode="bicubic"`,
    `align_corners=False` and `antialias=False`.

    References:
        - [Keys, 1981](https://doi.org/10.1109/TASSP.1981.1163711)
    """
    rows, columns, _ = grid.shape
    if (rows, columns) == (height, width):
        return grid
    return np.einsum(
        "hr,wc,rcd->hwd",
        _weights(rows, height),
        _weights(columns, width),
        grid.astype("float64"),
        optimize=True,
    ).astype(grid.dtype)


def _weights(before: int, after: int) -> np.ndarray:
    """Returns the weight of each old place for each new, `(after, before)`."""
    places = (np.arange(after) + 0.5) * before / after - 0.5
    first = np.floor(places).astype(int)
    weights = np.zeros((after, before))
    for step in range(-1, 3):  # the four that are next to a place
        neighbor = first + step
        share = _kernel(np.abs(places - neighbor))
        at = np.clip(neighbor, 0, before - 1)  # repeats the edge
        np.add.at(weights, (np.arange(after), at), share)
    return weights


def _kernel(distance: np.ndarray) -> np.ndarray:
    a, x = _SHARPNESS, distance
    near = ((a + 2) * x - (a + 3)) * x**2 + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, far)


class DeiT(ViT):
    """[Touvron et al., 2020](https://arxiv.org/abs/2012.12877)."""

    types = ("deit",)
    prefix = "deit."
    names = {
        **ViT.names,
        "distillation_token": "embeddings.distillation_token",
    }
    class_tokens = ("class_token", "distillation_token")
