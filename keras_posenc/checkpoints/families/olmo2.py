"""OLMo 2: Llama with norms of the outputs of its sublayers alone."""

from keras_posenc.checkpoints.families.llama import Llama


class Olmo2(Llama):
    """[OLMo et al., 2024](https://arxiv.org/abs/2501.00656)."""

    types = ("olmo2",)
    names = Llama.names | {
        "query_norm": "layers.{}.self_attn.q_norm",
        "key_norm": "layers.{}.self_attn.k_norm",
        "attention_output_norm": "layers.{}.post_attention_layernorm",
        "feed_forward_output_norm": "layers.{}.post_feedforward_layernorm",
    }
    usual_epsilon = 1e-5
    norm_at = "output"
    query_key_norm = "all"
