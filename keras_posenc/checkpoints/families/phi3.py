"""Phi-3 and Phi-4: Llama whose projections are stored together."""

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.llama import Mistral
from keras_posenc.checkpoints.rotary import rotary_of
from keras_posenc.positional.rotary_embedding import RotaryEmbedding

_APART = ("query", "key", "value", "intermediate", "gate")


class Phi3(Mistral):
    """[Abdin et al., 2024](https://arxiv.org/abs/2404.14219)."""

    types = ("phi3",)
    names = {
        **{
            part: name
            for part, name in Mistral.names.items()
            if part not in _APART
        },
        "query_key_value": "layers.{}.self_attn.qkv_proj",
        "gate_intermediate": "layers.{}.mlp.gate_up_proj",
    }
    usual_epsilon = 1e-5
    usual_window = None
    # Of the scaling "longrope", which is refused.
    ignored = "original_max_position_embeddings"
    fixed = dict.fromkeys(("attention_bias", "lm_head_bias", "mlp_bias"), False)

    def rotary(self, config: Config) -> RotaryEmbedding:
        share = config.positive("partial_rotary_factor", 1.0)
        return rotary_of(config, self.usual_base, share=share)
