"""DINOv3: rotary positions of rows and columns, and register tokens."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.dinov2 import DinoV2
from keras_posenc.checkpoints.family import ACTIVATIONS, SIZES, said_sizes
from keras_posenc.checkpoints.parts import Parts, array_of
from keras_posenc.checks import check_count, check_max_wavelength
from keras_posenc.positional.grids import GridPositions
from keras_posenc.positional.rotary_embedding import RotaryEmbedding
from keras_posenc.transformer.specs import Norm

# Which parts have biases, by the keys that say so.
_BIASES = {
    "query_bias": ("query",),
    "key_bias": ("key",),
    "value_bias": ("value",),
    "proj_bias": ("attention_output",),
    "mlp_bias": ("intermediate", "gate", "feed_forward_output"),
}


class DinoV3(DinoV2):
    """[Siméoni et al., 2025](https://arxiv.org/abs/2508.10104)."""

    types = ("dinov3_vit",)
    prefix = "dinov3_vit."
    pooling = None  # transformers has no classifier of it
    names = {
        "patches": "embeddings.patch_embeddings",
        "class_token": "embeddings.cls_token",
        "register_tokens": "embeddings.register_tokens",
        "query": "layer.{}.attention.q_proj",
        "key": "layer.{}.attention.k_proj",
        "value": "layer.{}.attention.v_proj",
        "attention_output": "layer.{}.attention.o_proj",
        "attention_norm": "layer.{}.norm1",
        "attention_scale": "layer.{}.layer_scale1.lambda1",
        "gate": "layer.{}.mlp.gate_proj",
        "intermediate": "layer.{}.mlp.up_proj",
        "feed_forward_output": "layer.{}.mlp.down_proj",
        "feed_forward_norm": "layer.{}.norm2",
        "feed_forward_scale": "layer.{}.layer_scale2.lambda1",
        "final_norm": "norm",
    }
    # Positions change at random in training alone.
    ignored = f"""
        {DinoV2.ignored} image_size return_class_token pos_embed_jitter
        pos_embed_rescale pos_embed_shift
    """
    fixed: Mapping[str, Any] = {}

    def options(self, config: Config) -> dict[str, Any]:
        patch_size = config.size("patch_size", 16)
        tokens = 1 + config.checked("num_register_tokens", check_count, 0)
        grid = GridPositions(
            patch_size,
            num_class_tokens=tokens,
            extent=2 * math.pi,
            name="grid_positions",
        )
        base = config.checked(
            "rope_theta", lambda _, value: check_max_wavelength(value), 100.0
        )
        return {
            **said_sizes(config, [n for n in SIZES if n != "vocabulary_size"]),
            "image_size": None,
            "patch_size": patch_size,
            "num_channels": config.size("num_channels", 3),
            "num_class_tokens": tokens,
            "input_position": None,
            "grid_positions": grid,
            "attention": RotaryEmbedding(
                max_wavelength=base, axes=2, name="rotary_embedding"
            ),
            "activation": config.choose("hidden_act", ACTIVATIONS, "gelu"),
            "use_gate": config.expect("use_gated_mlp", False, True),
            "norm": Norm(
                at="before", epsilon=config.positive("layer_norm_eps", 1e-5)
            ),
            "dropout": 0.0,
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        without = frozenset(
            part
            for key, parts in _BIASES.items()
            if not config.expect(key, key != "key_bias", key == "key_bias")
            for part in parts
        )
        return {"without_bias": without}

    def written(self, model: Any) -> dict[str, Any]:
        """Returns the keys of biases that training has changed from 0."""
        found = {}
        for block in model.encoder.encoder.blocks:
            attention, rest = block.attention, block.feed_forward
            query, key, value = np.split(
                array_of(attention.query_key_value.bias), 3
            )
            parts = {
                "query": query,
                "key": key,
                "value": value,
                "attention_output": attention.output_projection.bias,
                "intermediate": rest.intermediate.bias,
                "gate": None if rest.gate is None else rest.gate.bias,
                "feed_forward_output": rest.output_projection.bias,
            }
            for name, its in _BIASES.items():
                biases = [parts[x] for x in its if parts[x] is not None]
                if any(array_of(each).any() for each in biases):
                    found[name] = True
        return found

    def fill_embeddings(self, model: Any, parts: Parts) -> None:
        self.fill_patches(model, parts)
        table = model.embedding.embeddings
        count, width = table.shape
        registers = "register_tokens", (1, count - 1, width)
        parts.rows(table, [("class_token", (1, 1, width)), registers])
