"""GTE v1.5: gated feed-forward parts and rotary positions."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.rotary import rotary_of


class Gte(Bert):
    """[Zhang et al., 2024](https://arxiv.org/abs/2407.19669)."""

    prefix = "new."
    names = {
        "embedding": "embeddings.word_embeddings",
        "token_type": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "query_key_value": "encoder.layer.{}.attention.qkv_proj",
        "attention_output": "encoder.layer.{}.attention.o_proj",
        "attention_norm": "encoder.layer.{}.attn_ln",
        "intermediate_gate": "encoder.layer.{}.mlp.up_gate_proj",
        "feed_forward_output": "encoder.layer.{}.mlp.down_proj",
        "feed_forward_norm": "encoder.layer.{}.mlp_ln",
    }
    without_bias = frozenset({"intermediate_gate"})
    unused = (r"(new\.)?pooler\.dense\.(weight|bias)", r"lm_head\..*")
    pooler = ("new.pooler.dense", "tanh")

    usual_pad_id = 1

    def options(self, config: Config) -> dict[str, Any]:
        config.expect("logn_attention_scale", False)
        return {
            **self.sizes(config),
            "input_position": None,
            "attention_position": rotary_of(config, 160000.0),
            "embedding_norm": True,
            "use_gate": True,
        }
