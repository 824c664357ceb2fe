"""NomicBERT: gated feed-forward parts and rotary positions."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.rotary import rotary_of


class NomicBert(Bert):
    """[Nussbaum et al., 2024](https://arxiv.org/abs/2402.01613)."""

    prefix = "nomic_bert."
    names = {
        "embedding": "embeddings.word_embeddings",
        "token_type": "embeddings.token_type_embeddings",
        "embedding_norm": "emb_ln",
        "query_key_value": "encoder.layers.{}.attn.Wqkv",
        "attention_output": "encoder.layers.{}.attn.out_proj",
        "attention_norm": "encoder.layers.{}.norm1",
        "intermediate": "encoder.layers.{}.mlp.fc11",
        "gate": "encoder.layers.{}.mlp.fc12",
        "feed_forward_output": "encoder.layers.{}.mlp.fc2",
        "feed_forward_norm": "encoder.layers.{}.norm2",
    }
    unused = (r"cls\..*",)
    pooler = None
    usual_activation = "silu"

    def options(self, config: Config) -> dict[str, Any]:
        sizes = self.sizes(config)
        config.expect("head_dim", sizes["d_model"] // sizes["num_heads"])
        return {
            **sizes,
            "input_position": None,
            "attention_position": rotary_of(config, 1000.0),
            "embedding_norm": True,
            "use_gate": True,
            "use_bias": False,
        }
