"""NomicBERT: gated feed-forward layers and rotary positions."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.checkpoints.rotary import rotary_of

# Keys of configs for the custom code on the Hub, by those of transformers.
_NAMES_OF_HUB = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
# Of training, and choices between equal implementations.
_IGNORED_OF_HUB = """
    dense_seq_output fused_bias_fc fused_dropout_add_ln n_positions
    parallel_block_tied_norm reorder_and_upcast_attn summary_proj_to_labels
    use_flash_attn use_xentropy
"""
_ACTIVATIONS_OF_HUB = {"swiglu": "silu", "geglu": "gelu"}


class NomicBert(Bert):
    """[Nussbaum et al., 2024](https://arxiv.org/abs/2402.01613)."""

    types = ("nomic_bert",)
    prefix = "nomic_bert."
    prefix_of_hub = "bert."
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
    pooler = Pooler("{prefix}pooler.dense", "tanh")
    usual_activation = "silu"

    def options(self, config: Config) -> dict[str, Any]:
        scaling = None
        if "n_embd" in config.values:
            scaling = self.read_as_of_hub(config)
        sizes = self.sizes(config)
        config.expect("head_dim", sizes["d_model"] // sizes["num_heads"])
        # The table is padded to a multiple of this; no token has those rows.
        multiple = config.size("pad_vocab_size_multiple", 1)
        sizes["vocabulary_size"] += -sizes["vocabulary_size"] % multiple
        return {
            **sizes,
            "input_position": None,
            "attention": rotary_of(config, 1000.0, scaling=scaling),
            "embedding_norm": True,
            "use_gate": True,
            "use_bias": False,
        }

    def read_as_of_hub(self, config: Config) -> dict[str, Any] | None:
        """Renames the keys of the Hub's own code to those of transformers.

        Returns:
            The scaling of rotary positions for texts longer than those in
            training, or None.
        """
        # Where the key is missing, the two have different defaults.
        config.need(
            "activation_function", "layer_norm_epsilon", "rotary_emb_base"
        )
        for theirs, name in _NAMES_OF_HUB.items():
            config.rename(theirs, name)
        config.rename("activation_function", "hidden_act", _ACTIVATIONS_OF_HUB)
        config.require("rotary_emb_fraction", 1.0)
        for key in ("mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias"):
            config.require(key, False)
        for key in (
            "causal",
            "parallel_block",
            "prenorm",
            "rotary_emb_interleaved",
            "scale_attn_by_inverse_layer_idx",
            "use_rms_norm",
        ):
            config.expect(key, False)
        config.expect("scale_attn_weights", True)
        config.expect("rotary_emb_scale_base", None)
        for key in _IGNORED_OF_HUB.split():
            config.take(key, None)
        trained = config.size("max_trained_positions", 2048)
        if config.values.get("rotary_scaling_factor") is None:
            config.take("rotary_scaling_factor", None)
            return None
        return {
            "rope_type": "dynamic",
            "factor": config.positive("rotary_scaling_factor"),
            "original_max_position_embeddings": trained,
        }
