"""ALBERT: the same block for all layers, and narrower embeddings."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler

_BLOCK = "encoder.albert_layer_groups.{}.albert_layers.0."


class Albert(Bert):
    """[Lan et al., 2019](https://arxiv.org/abs/1909.11942)."""

    types = ("albert",)
    prefix = "albert."
    names = {
        **Bert.names,
        "embedding_projection": "encoder.embedding_hidden_mapping_in",
        "query": _BLOCK + "attention.query",
        "key": _BLOCK + "attention.key",
        "value": _BLOCK + "attention.value",
        "attention_output": _BLOCK + "attention.dense",
        "attention_norm": _BLOCK + "attention.LayerNorm",
        "intermediate": _BLOCK + "ffn",
        "feed_forward_output": _BLOCK + "ffn_output",
        "feed_forward_norm": _BLOCK + "full_layer_layer_norm",
    }
    pooler = Pooler("albert.pooler", "tanh")
    # Read by no library.
    ignored = "net_structure_type gap_size num_memory_blocks down_scale_factor"
    fixed = {"num_hidden_groups": 1, "inner_group_num": 1}
    usual_activation = "gelu_new"

    def options(self, config: Config) -> dict[str, Any]:
        return {
            **super().options(config),
            "embedding_dim": config.size("embedding_size", 128),
            "share_blocks": True,
        }
