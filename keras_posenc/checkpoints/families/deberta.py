"""DeBERTa v2 and v3: attention scores of contents and relative positions."""

from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import ACTIVATIONS, Pooler
from keras_posenc.checks import check_integer
from keras_posenc.positional.biases import DisentangledBias

# Three scores are added: content-content, content-position, position-content.
_SHARE = 3**-0.5
_FARTHEST = 2**20


class Deberta(Bert):
    """[He et al., 2021](https://arxiv.org/abs/2111.09543)."""

    types = ("deberta-v2",)
    prefix = "deberta."
    names = {
        "embedding": "embeddings.word_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "distances": "encoder.rel_embeddings",
        "distance_norm": "encoder.LayerNorm",
        **{
            part: name
            for part, name in Bert.names.items()
            if name.startswith("encoder.")
        },
        "query": "encoder.layer.{}.attention.self.query_proj",
        "key": "encoder.layer.{}.attention.self.key_proj",
        "value": "encoder.layer.{}.attention.self.value_proj",
    }
    ignored = "legacy"  # of masked language modeling only
    fixed = dict.fromkeys(("type_vocab_size", "conv_kernel_size", "z_steps"), 0)
    usual_epsilon = 1e-7

    def options(self, config: Config) -> dict[str, Any]:
        config.require("relative_attention", True)
        config.require("share_att_key", True)
        config.require("norm_rel_ebd", "layer_norm")
        config.require("position_biased_input", False)
        kinds = config.take("pos_att_type")
        if isinstance(kinds, str):
            kinds = kinds.split("|")
        if kinds not in (["c2p", "p2c"], ["p2c", "c2p"]):
            raise config.wrong("pos_att_type", "it must be p2c and c2p")
        longest = config.checked("max_relative_positions", check_integer, -1)
        trained = config.size("max_position_embeddings")
        sizes = self.sizes(config)
        config.expect(
            "attention_head_size", sizes["d_model"] // sizes["num_heads"]
        )
        config.expect("pooler_hidden_size", sizes["d_model"])
        position = {
            "num_buckets": config.size("position_buckets"),
            "max_distance": longest if longest > 0 else trained,
        }
        if max(position.values()) > _FARTHEST:
            raise config.wrong(
                "max_relative_positions", f"it must be at most {_FARTHEST}"
            )
        return {
            **sizes,
            "input_position": None,
            "embedding_norm": True,
            "attention": [
                DisentangledBias(**position, name="disentangled_bias")
                for _ in range(sizes["num_layers"])
            ],
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        act = config.choose("pooler_hidden_act", ACTIVATIONS, "gelu")
        return {
            "pooler": Pooler("pooler.dense", act),
            "factors": {"query": _SHARE},
        }

    def fill_embeddings(self, model: Any, parts: Any) -> None:
        super().fill_embeddings(model, parts)
        buckets = model.attention[0].position.num_buckets
        norm = keras.layers.LayerNormalization(
            epsilon=model.norm.epsilon, dtype="float32"
        )
        norm.build((None, model.d_model))
        parts.norm(norm, "distance_norm")
        table = parts.take("distances", (2 * buckets, model.d_model))
        parts.distances = keras.ops.convert_to_numpy(norm(table))

    def fill_block(self, block: Any, parts: Any, number: int) -> None:
        super().fill_block(block, parts, number)
        attention, position = (
            block.attention,
            block.attention.attention_position,
        )
        # The projection of distances does not depend on the input: done once.
        projection = attention.query_key_value
        kernel, bias = (
            keras.ops.convert_to_numpy(keras.ops.cast(weight, "float32"))
            for weight in (projection.kernel, projection.bias)
        )
        query, key, _ = (
            (parts.distances @ part + offset).reshape(
                position.key_embeddings.shape
            )
            for part, offset in zip(
                np.split(kernel, 3, axis=1), np.split(bias, 3), strict=True
            )
        )
        position.key_embeddings.assign(key)
        position.query_embeddings.assign(query)
