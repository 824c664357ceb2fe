"""GTE v1.5: gated feed-forward layers and rotary positions."""

from typing import Any

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.checkpoints.rotary import rotary_of


class Gte(Bert):
    """[Zhang et al., 2024](https://arxiv.org/abs/2407.19669)."""

    types = ("gte",)
    prefix = "gte."
    prefix_of_hub = "new."
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
    pooler = Pooler("{prefix}pooler.dense", "tanh")
    ignored = "logn_attention_clip1 unpad_inputs use_memory_efficient_attention"
    fixed = {
        "layer_norm_type": "layer_norm",
        "logn_attention_scale": False,
        "pack_qkv": True,
        "position_embedding_type": "rope",
    }
    usual_pad_id: Any = 1
    usual_types = 1
    usual_base: Any = 160000.0

    def options(self, config: Config) -> dict[str, Any]:
        sizes = self.sizes(config)
        return {
            **sizes,
            "input_position": None,
            "attention": rotary_of(
                config,
                self.usual_base,
                kinds=("default", "ntk"),
                head_dim=sizes["d_model"] // sizes["num_heads"],
            ),
            "embedding_norm": True,
            "use_gate": True,
        }


class New(Gte):
    """[Zhang et al., 2024](https://arxiv.org/abs/2407.19669).

    Under the names that the custom code on the Hub uses.
    """

    types = ("new",)

    # A head for weights of tokens, in encoders of texts.
    unused = (*Gte.unused, r"classifier\.(weight|bias)")
    usual_pad_id = REQUIRED
    usual_base = REQUIRED
