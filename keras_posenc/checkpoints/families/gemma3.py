"""The text model of Gemma 3, also of EmbeddingGemma."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.decoder_family import WHOLE, WINDOW, windows_of
from keras_posenc.checkpoints.families.llama import Llama
from keras_posenc.checkpoints.rotary import rotary_by_kind

# For each kind of block: the key of its base in older configs, and the base.
_ROTARY = {
    WHOLE: ("rope_theta", 1000000.0),
    WINDOW: ("rope_local_base_freq", 10000.0),
}


class Gemma3(Llama):
    """[Kamath et al., 2025](https://arxiv.org/abs/2503.19786)."""

    types = {"gemma3_text": "Gemma3Text"}
    names = Llama.names | {
        "query_norm": "layers.{}.self_attn.q_norm",
        "key_norm": "layers.{}.self_attn.k_norm",
        "attention_output_norm": "layers.{}.post_attention_layernorm",
        "feed_forward_norm": "layers.{}.pre_feedforward_layernorm",
        "feed_forward_output_norm": "layers.{}.post_feedforward_layernorm",
    }
    norm_offset = 1.0
    is_usually_tied = True
    usual_head_dim = 256
    usual_activation = "gelu_pytorch_tanh"
    activation_key = "hidden_activation"

    def own_options(self, config: Config) -> dict[str, Any]:
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            config.expect(key, None)
        self.is_causal = not config.expect(
            "use_bidirectional_attention", False, None, True
        )
        attention = config.expect("attention_bias", False, True)
        options = self.shared_options(config)
        scalar = config.positive("query_pre_attn_scalar", 256)
        self.query_scale = (options["head_dim"] / scalar) ** 0.5
        kinds = self.kinds(config, options["num_layers"])
        rotary = rotary_by_kind(config, _ROTARY)
        # Its window counts the token itself; on both sides it is half.
        size = config.size("sliding_window", 4096)
        window = size - 1 if self.is_causal else size // 2
        return {
            **options,
            **self.biases(attention, attention, False),
            "query_key_norm": True,
            "norm_at": "before output",
            "scale_inputs": True,
            "attention_position": [rotary[kind] for kind in kinds],
            "attention_window": windows_of(config, kinds, window),
        }

    def factors(self, block: Any, parts: Any, number: int) -> dict[str, Any]:
        return {"query_norm": self.query_scale}

    def kinds(self, config: Config, count: int) -> list[str]:
        """Returns the kind of each block."""
        every = config.size("sliding_window_pattern", 6)
        written = config.take("layer_types", None, list, type(None))
        config.take("_sliding_window_pattern", None)  # repeats `layer_types`
        if written is None:
            return [
                WINDOW if number % every else WHOLE
                for number in range(1, count + 1)
            ]
        windows_of(config, written, 1)  # checks them
        return written
