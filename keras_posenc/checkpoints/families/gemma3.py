"""The text model of Gemma 3, also of EmbeddingGemma."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import (
    WHOLE,
    WINDOW,
    kinds_of,
    specs_of,
    whole_at_each,
)
from keras_posenc.checkpoints.families.llama import Llama
from keras_posenc.checkpoints.family import specs_in
from keras_posenc.checkpoints.rotary import rotary_by_kind

# For each kind of block: the key of its base in older configs, and the base.
_ROTARY = {
    WHOLE: ("rope_theta", 1000000.0),
    WINDOW: ("rope_local_base_freq", 10000.0),
}


class Gemma3(Llama):
    """[Kamath et al., 2025](https://arxiv.org/abs/2503.19786)."""

    types = ("gemma3_text",)
    names = Llama.names | {
        "query_norm": "layers.{}.self_attn.q_norm",
        "key_norm": "layers.{}.self_attn.k_norm",
        "attention_output_norm": "layers.{}.post_attention_layernorm",
        "feed_forward_norm": "layers.{}.pre_feedforward_layernorm",
        "feed_forward_output_norm": "layers.{}.post_feedforward_layernorm",
    }
    norm_offset = 1.0
    scales_inputs = True
    is_usually_tied = True
    usual_head_dim = 256
    norm_at = "before output"
    query_key_norm = True
    usual_activation = "gelu_pytorch_tanh"
    activation_key = "hidden_activation"
    ignored = "_sliding_window_pattern"  # repeats `layer_types`
    fixed = {"attn_logit_softcapping": None, "final_logit_softcapping": None}

    def rotary(self, config: Config) -> None:
        return None

    def own_options(self, config: Config) -> dict[str, Any]:
        is_causal = not config.expect(
            "use_bidirectional_attention", False, None, True
        )
        attention = config.expect("attention_bias", False, True)
        options = self.shared_options(config, attention, attention)
        every = config.size("sliding_window_pattern", 6)
        kinds = kinds_of(config, whole_at_each(every, options["num_layers"]))
        rotary = rotary_by_kind(config, _ROTARY)
        # Its window counts the token itself; on both sides it is half.
        size = config.size("sliding_window", 4096)
        window = size - 1 if is_causal else size // 2
        specs = specs_of(kinds, options["attention"], window, rotary)
        return {**options, "use_causal_mask": is_causal, "attention": specs}

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        scalar = config.positive("query_pre_attn_scalar", 256)
        factor = (specs_in(options)[0].head_dim / scalar) ** 0.5
        found = super().said(config, options)
        return {**found, "factors": {"query_norm": factor}}
